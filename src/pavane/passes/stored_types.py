"""Which element types a target's engines take out of their buffers: every one but block floats, those where it says so.

`require_types` refuses with NoEngine a tensor of another type, and names what the target takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from pavane.ir.program import Tensor
from pavane.ir.types import DTYPES, MAGNITUDE_BITS
from pavane.reject import NoEngine
from pavane.targets.descriptor import SpatialTarget


def require_types(name: str, tensors: Iterable[Tensor], target: SpatialTarget) -> None:
    """Refuse tensors of a type that no engine of the target computes with."""
    taken = stored_types(target)
    foreign = [tensor for tensor in tensors if tensor.dtype not in taken]
    if foreign:
        dtypes = ", ".join(dict.fromkeys(tensor.dtype for tensor in foreign))
        count = "" if len(foreign) == 1 else f" and {len(foreign) - 1} more"
        raise NoEngine(
            f"no engine of {target.name} takes {dtypes} out of its buffers",
            where=f"{name}, tensor {foreign[0].name}{count}",
            needed=f"block_floats with {dtypes} in the chip's description",
            available=", ".join(taken),
            remedy="store these tensors in a type that the target takes (weights as q8_0, say), or use another target",
        )


def stored_types(target: SpatialTarget) -> tuple[str, ...]:
    """What a tensor may be stored as, in the order of the types."""
    engines = [engine for engine in target.engines if "compute" in engine.roles]
    return tuple(d for d in DTYPES if d not in MAGNITUDE_BITS or any(d in engine.block_floats for engine in engines))
