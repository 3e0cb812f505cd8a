"""How a tensor of home `sharded` is dealt to the sites: its bytes in blocks, block b to site `b mod sites`.

Sites are numbered row by row over the whole grid. A site keeps its blocks one after the other, from the tensor's
`offset` on, the same on every site; a last block that is not full takes the room of a full one.
"""

from __future__ import annotations

from collections.abc import Iterator

Piece = tuple[int, int, int]  # the site's number, the place in its share, bytes


def share_bytes(tensor_bytes: int, shard_bytes: int, sites: int) -> int:
    """The room of a tensor's share on a site: that of the site with most blocks."""
    blocks = -(-tensor_bytes // shard_bytes)
    return -(-blocks // sites) * shard_bytes


def pieces(address: int, count_bytes: int, shard_bytes: int, sites: int) -> Iterator[Piece]:
    """Where so many bytes of the tensor lie, from `address` on, in their order."""
    end = address + count_bytes
    while address < end:
        block, inside = divmod(address, shard_bytes)
        size = min(end - address, shard_bytes - inside)
        yield block % sites, block // sites * shard_bytes + inside, size
        address += size
