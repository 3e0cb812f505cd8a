"""Where the local memory of a site goes: what the chip reserves, a section's buffers, copies that every site has, and
shares of what is dealt to the sites.

Bytes count from the start of that memory, the reserved ones included, as in what `pavane check` says of capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pavane.ir.program import Carry, Fifo, Instance, Program, Shape, Tensor
from pavane.ir.quasi import Domain
from pavane.ir.shards import share_bytes
from pavane.ir.types import row_bytes
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.bindings import tensor_bytes

Part = tuple[int, int, str]  # address (-1: not chosen yet), bytes, name
_NO_SYMBOLS = Domain(())  # on which the extents of what is sharded would depend


def memory_summary(program: Program, target: SpatialTarget) -> Iterator[str]:
    """The section that needs most, the copies on every site, and each site's shares of what is sharded."""
    fullest = max(program.shapes, key=lambda shape: _taken(_buffers(shape)))
    by = f", by {fullest.name}, which takes the most" if len(program.shapes) > 1 else ""
    yield f"memory: {_of_a_site(_buffers(fullest), target)}{by}"
    copies = _copies(program)
    if copies:
        yield f"copies on every site: {_where(copies)}"
    shares = _shares(program, target)
    if shares:
        held = ", ".join(f"{_bytes_of(program, role):,} bytes of {role}" for role in ("WEIGHT", "STATE"))
        yield f"shares of what is sharded: {_where(shares)} of every site; {held} in all, there before the first launch"


def memory_lines(program: Program, shape: Shape, place: Instance | None, target: SpatialTarget) -> Iterator[str]:
    """A section's buffers and, of the copies on the sites and of what is sharded, what it uses at this place; each in
    order of address.
    """
    buffers, copies, shares = _buffers(shape), _copies(program), _shares(program, target)
    bound = {binding.tensor for binding in place.bindings} if place else frozenset()
    yield f"memory: {_of_a_site(buffers, target)}"
    yield from (f"  {_line(part)}" for part in buffers)
    if copies:
        used = [part for part in copies if part[2] in bound]
        yield f"copies on every site: {_where(copies)}; {len(used)} of them used here"
        yield from (f"  {_line(part)}" for part in used)
    if shares:
        held, tensors = [part for part in shares if part[2] in bound], {t.name: t for t in program.tensors}
        yield f"shares of what is sharded: {_where(shares)} of every site; {len(held)} of them used here"
        yield from (f"  {_line(part)} of every site, {_dealt(tensors[part[2]], target)}" for part in held)


def _buffers(shape: Shape) -> list[Part]:
    """Those that take memory: an alias has none."""
    taking: list[Fifo | Carry] = [*(fifo for fifo in shape.fifos if fifo.kind != "ALIAS"), *shape.carries]
    return sorted((buffer.address, _bytes(buffer), buffer.name) for buffer in taking)


def _bytes(buffer: Fifo | Carry) -> int:
    slots = 1 if isinstance(buffer, Carry) else max(1, buffer.depth)
    return slots * buffer.rows * row_bytes(buffer.dtype, buffer.cols)


def _copies(program: Program) -> list[Part]:
    symbols = Domain((symbol.name, symbol.lo, symbol.hi) for symbol in program.symbols)
    return sorted((t.offset, tensor_bytes(t, symbols), t.name) for t in program.tensors if t.home == "sites")


def _shares(program: Program, target: SpatialTarget) -> list[Part]:
    return sorted(
        (t.offset, share_bytes(tensor_bytes(t, _NO_SYMBOLS), t.shard_bytes, target.sites), t.name)
        for t in program.tensors
        if t.home == "sharded"
    )


def _dealt(tensor: Tensor, target: SpatialTarget) -> str:
    """How its blocks are shared out: block b to site `b mod sites`."""
    size = tensor_bytes(tensor, _NO_SYMBOLS)
    blocks = -(-size // tensor.shard_bytes)
    each, more = divmod(blocks, target.sites)
    first = "the first site" if more == 1 else f"each of the first {more} of {target.sites} sites"
    to = f"{each} to each" if not more else f"{each + 1} to {first}"
    rest = f", {each} to the others" if more and each else ""
    return f"its {size:,} bytes in {blocks} blocks of {tensor.shard_bytes:,}, {to}{rest}"


def _bytes_of(program: Program, role: str) -> int:
    """All bytes of the sharded tensors of a role."""
    held = (t for t in program.tensors if t.home == "sharded" and t.role == role)
    return sum(tensor_bytes(t, _NO_SYMBOLS) for t in held)


def _of_a_site(buffers: Sequence[Part], target: SpatialTarget) -> str:
    reserved = target.memory.reserved_bytes
    beside = f", {reserved:,} of them reserved" if reserved else ""
    return f"{_taken(buffers):,} of {target.memory.bytes:,} bytes a site{beside}"


def _taken(buffers: Sequence[Part]) -> int:
    """Up to the last byte; before buffers have addresses, what they need in all."""
    if any(address < 0 for address, _, _ in buffers):
        return sum(size for _, size, _ in buffers)
    return max((address + size for address, size, _ in buffers), default=0)


def _where(copies: Sequence[Part]) -> str:
    start, end = copies[0][0], max(address + size for address, size, _ in copies)
    return f"{len(copies)} tensor{'' if len(copies) == 1 else 's'} in bytes {start:,} to {end:,}"


def _line(part: Part) -> str:
    address, size, name = part
    return f"{name}: {size:,} bytes" + (f" at {address:,}" if address >= 0 else "")
