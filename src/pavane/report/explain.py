"""Why a section is as it is: its plan and the plan that it beat, what bounds it, the joins taken and not, where its
memory goes.

`explain(program, target)` gives a line a shape; with a section's name, all that is known of it. Refuses a program that
is not well formed (ProgramReject), and a name that the program does not have (ArgumentReject).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from pavane.ir.expr import Indirect
from pavane.ir.program import Formal, Join, Load, Plan, Program, Shape
from pavane.ir.types import row_bytes
from pavane.ir.walk import bodies, leaves, parts
from pavane.report.memory import memory_lines, memory_summary
from pavane.report.sections import named_section
from pavane.targets.descriptor import SpatialTarget
from pavane.validate import require_valid

_FULL_SYNC = "full sync, so each result leaves them before the next step begins"


def explain(program: Program, target: SpatialTarget, name: str | None = None) -> str:
    """The text for people."""
    require_valid(program, target)
    if name is None:
        return "\n".join((*_overview(program), *("  " + line for line in memory_summary(program, target)))) + "\n"
    shape, place = named_section(program, name)
    times = sum(1 for instance in program.instances if instance.shape == shape.name)
    expected = {symbol.name: symbol.expected for symbol in program.symbols}
    memory = ("  " + line for line in memory_lines(program, shape, place, target))
    return "\n".join((*_section(shape, times, expected, target), *memory)) + "\n"


def _overview(program: Program) -> Iterator[str]:
    times = Counter(instance.shape for instance in program.instances)
    total = sum(times[shape.name] * (shape.plan.cycles if shape.plan else 0) for shape in program.shapes)
    sections = f"{len(program.instances)} section{'' if len(program.instances) == 1 else 's'}"
    at_once = "" if len(program.instances) == 1 else " (waves at once; boundaries and launch not counted)"
    yield f"program {program.name} for {program.target}: {sections}, {_in_waves(program):,} predicted cycles{at_once}"
    width = max(len(shape.name) for shape in program.shapes)
    ordered = sorted(program.shapes, key=lambda s: -times[s.name] * (s.plan.cycles if s.plan else 0))
    for shape in ordered:
        cycles = times[shape.name] * (shape.plan.cycles if shape.plan else 0)
        share = f"{100 * cycles / total:5.1f} %" if total else "      ?"
        bound = shape.plan.bottleneck if shape.plan else "no plan"
        yield f"  {shape.name:<{width}}  {times[shape.name]:>4} x  {share}  bound by {bound or 'nothing known'}"
    between = dict.fromkeys(join for shape in program.shapes for join in shape.joins if is_between_sections(join))
    yield from ("  " + _join_line(join) for join in between)


def _in_waves(program: Program) -> int:
    """Predicted cycles of all sections, one wave after the other."""
    cycles = {shape.name: shape.plan.cycles if shape.plan else 0 for shape in program.shapes}
    waves: dict[int, int] = {}
    for number, instance in enumerate(program.instances):
        wave = instance.wave if instance.wave >= 0 else -1 - number
        waves[wave] = max(waves.get(wave, 0), cycles[instance.shape])
    return sum(waves.values())


def is_between_sections(join: Join) -> bool:
    """Made by `reside`, `pack` or `forward`, so it stands in every section that it is about."""
    return join.what.startswith(("reside ", "pack ", "forward "))


def _section(shape: Shape, times: int, expected: Mapping[str, int], target: SpatialTarget) -> Iterator[str]:
    yield f"section {shape.name}, {times} time{'' if times == 1 else 's'} in the program"
    yield from ("  " + line for line in _plan_lines(shape.plan))
    yield "  " + _bound_line(shape, expected, target)
    yield from ("  " + _join_line(join) for join in shape.joins)
    if not shape.joins:
        yield "  joins: none was to be had"
    yield from (f"  registers of {part.name}: {_FULL_SYNC}" for part in parts(shape) if part.registers == "FULL")
    numbers = shape.numerics
    claim = "exact to the bit" if numbers.exact else "within its error bound"
    yield f"  numerics: {numbers.contract}, adds in {numbers.accumulator}, {claim}"
    yield from ("    " + term for term in numbers.terms)


def _plan_lines(plan: Plan | None) -> Iterator[str]:
    if plan is None:
        yield "plan: none (the program was not made by `tile`)"
        return
    yield f"plan: blocks of {plan.rows} x {plan.cols}, k in blocks of {plan.k}: {plan.cycles:,} cycles predicted"
    if plan.bottleneck:
        yield f"bottleneck: {plan.bottleneck}"
    if plan.runner_up is None:
        yield f"runner-up: none; {plan.considered} plan{'' if plan.considered == 1 else 's'} considered"
        return
    rows, cols, k = plan.runner_up
    slower = 100 * (plan.runner_up_cycles - plan.cycles) / plan.cycles if plan.cycles else 0.0
    how = f"{slower:.1f} % more" if slower >= 0 else f"{-slower:.1f} % less, but more traffic beside the chip"
    yield (
        f"runner-up: {rows} x {cols}, k {k}: {plan.runner_up_cycles:,} cycles, {how}; "
        f"{plan.considered} plans considered"
    )


def _bound_line(shape: Shape, expected: Mapping[str, int], target: SpatialTarget) -> str:
    """What no plan can beat: every operand beside the chip moved once, at the rate of all channels. Gathered tables do
    not count.
    """
    steps = [step for _, body in bodies(shape) for _, step in leaves(body)]
    gathered = {s.tensor for s in steps if isinstance(s, Load) and any(isinstance(i, Indirect) for i in s.window.start)}
    beside = (formal for formal in shape.formals if formal.home == "dram" and formal.name not in gathered)
    size = sum(_formal_bytes(formal, expected) for formal in beside)
    cycles = -(-size // (target.dram.channels * target.dram.bytes_per_cycle))
    at = ", ".join(f"{name} = {value}" for name, value in expected.items())
    return f"bound: {cycles:,} cycles to move {size:,} bytes once{f', at {at}' if at else ''}"


def _formal_bytes(formal: Formal, expected: Mapping[str, int]) -> int:
    *outer, last = (extent.evaluate(expected) for extent in formal.shape)
    return prod(outer) * row_bytes(formal.dtype, last)


def _join_line(join: Join) -> str:
    return f"join {join.what}: {join.taken} at {join.cycles:,} cycles, not {join.other} at {join.other_cycles:,}"
