"""In which part of their registers the stages of a section compute.

In half sync an engine has half of its registers, and what it computed before leaves the other half meanwhile. In full
sync, where the chip has that, it has all of them, and each result leaves before the next step begins. So full sync is
for ops that half sync does not hold, and for ops that it would leave cut where that is predicted to be slower, by more
than predictions can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pavane.ir.program import Compute, Join, Program, Shape, Stage
from pavane.ir.types import Registers
from pavane.ir.walk import leaves, parts, symbol_domain
from pavane.passes.predicting import section_prediction, section_spread
from pavane.passes.pricing import NEAR
from pavane.reject import OutOfRegisters
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.registers import fits_registers, generics, register_window

_SYNC: dict[Registers, str] = {"HALF": "half sync", "FULL": "full sync"}


def in_each_window(shape: Shape, target: SpatialTarget) -> tuple[Shape, ...]:
    """The section in half sync, and where the target has an engine with full sync in that."""
    windows = dict.fromkeys(registers for engine in target.engines for registers in engine.windows)
    return tuple(_in_registers(shape, registers, target) for registers in windows)


def _in_registers(shape: Shape, registers: Registers, target: SpatialTarget) -> Shape:
    """With these registers for each stage that computes on an engine that has such a window."""
    able = [engine.name for engine in target.engines if registers in engine.windows]

    def changed(stage: Stage) -> Stage:
        computes = any(isinstance(step, Compute) for _, step in leaves(stage.body))
        return replace(stage, registers=registers) if computes and stage.engine in able else stage

    groups = tuple(replace(group, stages=tuple(map(changed, group.stages))) for group in shape.groups)
    return replace(shape, groups=groups)


def with_least_cycles(program: Program, tried: Sequence[Shape], target: SpatialTarget) -> Shape:
    """Of the section in half and in full sync what holds every op; of both half sync, unless that is slower.

    Refuses with OutOfRegisters.
    """
    holding = [shape for shape in tried if _fits(shape, target)]
    if not holding:
        raise _out_of_registers(tried[-1], target)
    if len(holding) == 1 or holding[0].carries == holding[1].carries:
        return holding[0]
    half, full = holding
    in_half, in_full = (_cycles(program, shape, target) for shape in holding)
    if in_full * (NEAR + 1) < in_half * NEAR:
        return _with_join(full, Join("registers", _SYNC["FULL"], in_full, _SYNC["HALF"], in_half))
    return _with_join(half, Join("registers", _SYNC["HALF"], in_half, _SYNC["FULL"], in_full))


def _fits(shape: Shape, target: SpatialTarget) -> bool:
    return all(fits_registers(shape, stage, target) for stage in parts(shape))


def _cycles(program: Program, shape: Shape, target: SpatialTarget) -> int:
    spread = section_spread(shape, symbol_domain(program), target)
    return section_prediction(program, shape, spread, target)({}).cycles


def _with_join(shape: Shape, join: Join) -> Shape:
    return replace(shape, joins=(*shape.joins, join))


def _out_of_registers(shape: Shape, target: SpatialTarget) -> OutOfRegisters:
    """The first op that does not fit."""
    ops = ((stage, register_window(shape, stage, target), op) for stage in parts(shape) for op in generics(stage.body))
    stage, window, op = next(each for each in ops if not each[1].fits(each[2]))
    sync = f" in {_SYNC[window.registers]}" if len(window.engine.windows) > 1 else ""
    return OutOfRegisters(
        "a compute step holds more tiles than the engine's registers",
        where=f"section {shape.name}, stage {stage.name}, {op.dst.name}",
        needed=f"{window.tiles(op)} tiles",
        available=f"{window.room(op)} of engine {window.engine.name} of {target.name}{sync}",
        terms=window.held(op),
        remedy="more register tiles, or an op of fewer operands",
    )
