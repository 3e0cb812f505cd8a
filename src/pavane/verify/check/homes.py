"""Homes: what lies on the sites is SCRATCH or WEIGHT, stands in their memory beside every buffer, as its sections say.

A tensor of home `sites` has a copy at `offset` of every site's local memory. A store writes all copies and is over, at
its fence, when the last has it; a load reads its own site's. So all copies are equal wherever a read is ordered after
the write, and `order`, `coverage` and `bounds` speak of them as of one tensor. What is left is room: [offset, offset +
bytes) inside local memory, disjoint from every buffer of every shape (whoever runs where), and a WEIGHT's from every
other tensor there. Two SCRATCH tensors may share bytes; `order` then takes them as conflicting (`bindings`).
"""

from __future__ import annotations

from pavane.ir.program import Program, Tensor
from pavane.ir.quasi import Domain
from pavane.reject import CapacityRefused
from pavane.targets.descriptor import SpatialTarget
from pavane.verify.check.bindings import Memory, bound, tensor_bytes
from pavane.verify.check.capacity import memory_map
from pavane.verify.check.section import Section


def homes(
    program: Program, sections: dict[str, Section], memory: Memory, symbols: Domain, target: SpatialTarget
) -> str:
    """Refuse a copy that has no room, and a section that looks for a tensor elsewhere than where it lies."""
    for number, instance in enumerate(program.instances):
        for formal, tensor in bound(sections[instance.shape], instance, memory):
            if formal.home != tensor.home:
                raise CapacityRefused(
                    f"the section takes {formal.name} from {formal.home}",
                    where=f"section {number} ({instance.name or instance.shape})",
                    needed=formal.home,
                    available=f"{tensor.name} lies in {tensor.home}",
                )
    copies = [tensor for tensor in program.tensors if tensor.home == "sites"]
    for tensor in copies:
        _may_lie_there(tensor, target)
        if not memory.part:
            _has_room(tensor, sections, symbols, target)
    if not memory.part:
        _weights_apart(copies, symbols)
    return f"{len(copies)} tensors on the sites"


def _may_lie_there(tensor: Tensor, target: SpatialTarget) -> None:
    if tensor.role not in ("SCRATCH", "WEIGHT") or target.alias:
        raise CapacityRefused(
            f"a tensor of role {tensor.role} lies on the sites",
            where=f"tensor {tensor.name}",
            needed="SCRATCH or WEIGHT, on a chip whose engines move what they work on",
        )


def _has_room(tensor: Tensor, sections: dict[str, Section], symbols: Domain, target: SpatialTarget) -> None:
    where, local = f"tensor {tensor.name}", target.memory
    start, end = tensor.offset, tensor.offset + tensor_bytes(tensor, symbols)
    if start < local.reserved_bytes or start % local.alignment_bytes or end > local.bytes:
        raise CapacityRefused(
            f"the copies take bytes {start} to {end} of each site",
            where=where,
            needed=f"a multiple of {local.alignment_bytes} from {local.reserved_bytes} on",
            available=f"{local.bytes} bytes a site",
        )
    for section in sections.values():
        for low, high, name in memory_map(section):
            if start < high and low < end:
                raise CapacityRefused(
                    f"the copies share bytes with {name} of {section.shape.name}",
                    where=where,
                    needed=f"bytes {start} to {end}",
                    available=f"{name} takes {low} to {high}",
                )


def _weights_apart(copies: list[Tensor], symbols: Domain) -> None:
    """Nothing is laid over a weight, which must last from launch to launch."""
    for tensor in (t for t in copies if t.role == "WEIGHT"):
        start, end = tensor.offset, tensor.offset + tensor_bytes(tensor, symbols)
        for other in copies:
            low, high = other.offset, other.offset + tensor_bytes(other, symbols)
            if other is not tensor and start < high and low < end:
                raise CapacityRefused(
                    f"the copies of {tensor.name} share bytes with those of {other.name}",
                    where=f"tensor {tensor.name}",
                    needed=f"bytes {start} to {end} of each site",
                    available=f"{other.name} takes {low} to {high}",
                )
