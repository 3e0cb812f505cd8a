"""The memory beside the chip: what a program's tensors take of it, and what would hold a program that is too large.

`require_memory` refuses with ComposeReject: how many bytes are missing, the terms by role, the longest context that
would fit (where caches are what is too long), or how many chips of this kind hold it together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pavane.ir.program import Tensor
from pavane.ir.quasi import Domain, upper
from pavane.ir.shards import share_bytes
from pavane.ir.types import row_bytes
from pavane.reject import ComposeReject
from pavane.targets.descriptor import SpatialTarget


def tensor_bytes(tensor: Tensor, domain: Domain) -> int:
    """The most bytes a tensor takes for any value of the symbols."""
    rows = 1
    for extent in tensor.shape[:-1]:
        rows *= upper(extent, domain)
    return rows * row_bytes(tensor.dtype, upper(tensor.shape[-1], domain))


def bytes_at_home(tensor: Tensor, domain: Domain, target: SpatialTarget) -> int:
    """The most bytes that it takes where it lies: of what is sharded a site's share, of any other tensor all."""
    size = tensor_bytes(tensor, domain)
    return share_bytes(size, tensor.shard_bytes, target.sites) if tensor.home == "sharded" else size


def require_memory(
    name: str, tensors: Iterable[Tensor], domain: Domain, target: SpatialTarget, scratch_bytes: int = 0
) -> None:
    """Refuse what the memory beside the chip cannot hold. `scratch_bytes`: of the arena that all SCRATCH shares."""
    kept = [t for t in tensors if t.role != "SCRATCH" and t.home == "dram"]
    terms: dict[str, int] = {"SCRATCH": scratch_bytes} if scratch_bytes else {}
    for tensor in kept:
        terms[tensor.role] = terms.get(tensor.role, 0) + tensor_bytes(tensor, domain)
    total = sum(terms.values())
    if total > target.dram.bytes:
        raise ComposeReject(
            f"the tensors of {name!r} do not fit the memory beside the chip",
            where=target.name,
            needed=f"{total} B, {total - target.dram.bytes} B too many",
            available=f"{target.dram.bytes} B",
            terms=[f"{role} {size} B" for role, size in sorted(terms.items())],
            remedy=_smallest_configuration(kept, domain, total, target),
        )


def _smallest_configuration(tensors: Sequence[Tensor], domain: Domain, total: int, target: SpatialTarget) -> str:
    caches = [t for t in tensors if t.role == "STATE" and t.transition is not None]
    a_position = sum(tensor_bytes(t, domain) // upper(t.shape[0], domain) for t in caches)
    positions = max((upper(t.shape[0], domain) for t in caches), default=0)
    fits = positions - -(-(total - target.dram.bytes) // a_position) if a_position else 0
    chips = -(-total // target.dram.bytes)
    shared = f"{chips} of {target.name} hold it together"
    if fits > 0:
        return f"caches of at most {fits} positions ({positions} are asked for, {a_position} B each); or {shared}"
    return f"a smaller model; {shared}, or one chip with {total} B beside it"
