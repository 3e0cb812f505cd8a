"""The memory beside the chip: what a program's tensors take of it, and what would hold a program that is too large.

What lies on the sites takes nothing of it. Refuses with ComposeReject: how many bytes are missing, the terms by role,
what the sites hold already, and what would make it fit: the longest context (where caches lie beside the chip),
another type that matrices are stored as, both, how many chips that each hold as much as this one, or how much memory
beside one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pavane.ir.program import Program, Tensor, Transition
from pavane.ir.quasi import Domain, upper
from pavane.ir.shards import share_bytes
from pavane.ir.types import INTEGER_DTYPES, STORED_WEIGHTS, block_elements, row_bytes
from pavane.passes.arena import arena
from pavane.passes.buffers import usable_bytes
from pavane.passes.stored_types import stored_types
from pavane.passes.template import symbols_domain
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
    name: str, tensors: Iterable[Tensor], domain: Domain, target: SpatialTarget, scratch_bytes: int
) -> None:
    """Refuse what the memory beside the chip cannot hold. `scratch_bytes`: of the arena that all SCRATCH shares."""
    kept = [tensor for tensor in tensors if tensor.role != "SCRATCH"]
    terms = _bytes_beside(kept, domain) | ({"SCRATCH": scratch_bytes} if scratch_bytes else {})
    if sum(terms.values()) > target.dram.bytes:
        raise _too_large(name, kept, domain, terms, target)


def require_room(name: str, sections: Sequence[Program], target: SpatialTarget) -> None:
    """The same of TEMPLATE sections of which it is known what is sharded. Results, and gains where several sections are
    joined, may come to lie on the sites: they are not counted, but a way out leaves room for them.
    """
    if missing_bytes(sections, frozenset(), target):
        tensors, domain = _declared(sections)
        kept = [tensor for tensor in tensors.values() if tensor.role != "SCRATCH"]
        terms, gains = _certain_bytes(kept, sections, domain, target)
        spare = gains + _results_bytes(tensors, sections, domain, target)
        raise _too_large(name, kept, domain, terms, target, spare)


def missing_bytes(sections: Sequence[Program], resident: Collection[str], target: SpatialTarget) -> int:
    """What memory beside the chip lacks for TEMPLATE sections, were these tensors sharded as well."""
    tensors, domain = _declared(sections)
    kept = [tensor for name, tensor in tensors.items() if tensor.role != "SCRATCH" and name not in resident]
    terms, _ = _certain_bytes(kept, sections, domain, target)
    return max(0, sum(terms.values()) - target.dram.bytes)


def _declared(sections: Sequence[Program]) -> tuple[dict[str, Tensor], Domain]:
    """All tensors of the sections by name, and the values of their symbols."""
    tensors = {tensor.name: tensor for section in sections for tensor in section.tensors}
    symbols = {symbol.name: symbol for section in sections for symbol in section.symbols}
    return tensors, symbols_domain(symbols.values())


def _certain_bytes(
    kept: Sequence[Tensor], sections: Sequence[Program], domain: Domain, target: SpatialTarget
) -> tuple[dict[str, int], int]:
    """What lies beside the chip by role, but the gains, and these."""
    terms = _bytes_beside(kept, domain)
    gains = _gain_bytes(kept, domain, target) if len(sections) > 1 else 0
    if gains:
        terms["WEIGHT"] -= gains
    return terms, gains


def _bytes_beside(tensors: Iterable[Tensor], domain: Domain) -> dict[str, int]:
    """By role."""
    terms: dict[str, int] = {}
    for tensor in tensors:
        if tensor.home == "dram":
            terms[tensor.role] = terms.get(tensor.role, 0) + tensor_bytes(tensor, domain)
    return terms


def _gain_bytes(tensors: Iterable[Tensor], domain: Domain, target: SpatialTarget) -> int:
    """Of weights of one row, as much as every site could have a copy of."""
    weights = (tensor for tensor in tensors if tensor.role == "WEIGHT" and len(tensor.shape) == 1)
    room = 0 if target.alias else usable_bytes(target)
    return min(room, sum(tensor_bytes(tensor, domain) for tensor in weights))


def _results_bytes(
    tensors: Mapping[str, Tensor], sections: Sequence[Program], domain: Domain, target: SpatialTarget
) -> int:
    """What results take where all of them lie beside the chip."""
    lives: dict[str, tuple[int, int]] = {}
    for number, section in enumerate(sections):
        for binding in section.instances[0].bindings:
            lives[binding.tensor] = (lives.get(binding.tensor, (number, 0))[0], number)
    results = {tensor.name: tensor_bytes(tensor, domain) for tensor in tensors.values() if tensor.role == "SCRATCH"}
    return arena(results, lives, target.dram.alignment_bytes).bytes


# --- the refusal ------------------------------------------------------------------------------------------------------


def _too_large(
    name: str,
    kept: Sequence[Tensor],
    domain: Domain,
    terms: Mapping[str, int],
    target: SpatialTarget,
    spare_bytes: int = 0,
) -> ComposeReject:
    """`spare_bytes`: what a way out leaves free."""
    total, available = sum(terms.values()), target.dram.bytes
    on_sites = sum(tensor_bytes(tensor, domain) for tensor in kept if tensor.home != "dram")
    beside = [tensor for tensor in kept if tensor.home == "dram"]
    changes = _changes(beside, domain, total + spare_bytes - available, target) or ["a smaller model"]
    chips = -(-(total + on_sites) // (available + on_sites))
    one = f"one chip with {total + spare_bytes} B beside it"
    return ComposeReject(
        f"the tensors of {name!r} do not fit the memory beside the chip",
        where=target.name,
        needed=f"{total} B, {total - available} B too many",
        available=f"{available} B" + (f", and the sites hold {on_sites} B more" if on_sites else ""),
        terms=[f"{role} {size} B" for role, size in sorted(terms.items()) if size],
        remedy="; or ".join((*changes, f"{chips} of {target.name} hold it together, or {one}")),
    )


def _changes(beside: Sequence[Tensor], domain: Domain, too_many: int, target: SpatialTarget) -> list[str]:
    """The smallest changes of each kind that save so many bytes; both kinds together where none does by itself."""
    saved = _saved_by_type(beside, domain, target)
    context = _context(beside, domain, too_many)
    stored = next((f"matrices stored as {dtype}" for dtype, less in saved if less >= too_many), "")
    if context or stored:
        return [change for change in (context, stored) if change]
    pairs = ((dtype, _context(beside, domain, too_many - less)) for dtype, less in saved)
    return [f"matrices stored as {dtype} and {context}" for dtype, context in pairs if context][:1]


def _context(beside: Sequence[Tensor], domain: Domain, too_many: int) -> str:
    """The longest context whose caches leave so many bytes more; nothing where there is none."""
    caches = [(tensor, tensor.transition) for tensor in beside if tensor.transition is not None]
    asked = max((_positions(transition, domain) for _, transition in caches), default=0)
    a_position = sum(tensor_bytes(tensor, domain) // upper(tensor.shape[0], domain) for tensor, _ in caches)
    fits = asked - -(-too_many // a_position) if a_position else 0
    return f"a context of at most {fits} positions ({asked} are asked for, {a_position} B each)" if fits > 0 else ""


def _positions(transition: Transition, domain: Domain) -> int:
    """Where an epoch may begin; a cache has rows beyond, for those that an epoch writes."""
    return 1 + upper(transition.row, domain)


def _saved_by_type(beside: Sequence[Tensor], domain: Domain, target: SpatialTarget) -> list[tuple[str, int]]:
    """Types that matrices may be stored as instead, and the bytes that this saves; the least first, which round least.

    A matrix whose rows are no whole blocks stays as it is.
    """
    weights = (tensor for tensor in beside if tensor.role == "WEIGHT" and tensor.dtype not in INTEGER_DTYPES)
    matrices = [tensor for tensor in weights if len(tensor.shape) == 2]
    taken = stored_types(target)
    types = (dtype for dtype in STORED_WEIGHTS if dtype in taken)
    saved = [(dtype, sum(_saved(tensor, dtype, domain) for tensor in matrices)) for dtype in types]
    return sorted(((dtype, less) for dtype, less in saved if less > 0), key=lambda pair: pair[1])


def _saved(matrix: Tensor, dtype: str, domain: Domain) -> int:
    rows, columns = (upper(extent, domain) for extent in matrix.shape)
    if columns % block_elements(dtype):
        return 0
    return rows * (row_bytes(matrix.dtype, columns) - row_bytes(dtype, columns))
