"""fuse_generic: FUSED -> FUSED. Put back together what legalisation took apart.

A carry marked `cut` is written by one Generic and read by the next ones. Where every reader is a Generic of the same
rows and columns that reads it at its own point, and either only one does or the value costs at most one operator, the
value's expression takes the carry's place and the carry is gone, if what the fused Generic holds fits the registers
that its stage computes in (`targets.registers`). Steps between the two must leave what the expression reads as it is. A
cut that cannot be undone stays. It is tried in half and in full sync, and `full_sync` chooses.

Refuses: OutOfRegisters, where a Generic that nothing cuts further does not fit.
"""

from __future__ import annotations

from msgspec.structs import replace

from pavane.ir.expr import At, Expr, Fn, Reduce, names, replace_operands, walk
from pavane.ir.program import (
    LV_GEN_COL,
    LV_GEN_ROW,
    Carry,
    Compute,
    Front,
    Generic,
    Init,
    Loop,
    Node,
    Pop,
    Program,
    Push,
    Reserve,
    Shape,
    Stage,
)
from pavane.ir.quasi import quasi
from pavane.ir.walk import leaves, operands, rebuild
from pavane.passes.full_sync import in_each_window, with_least_cycles
from pavane.passes.section import section_of, with_section
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.registers import RegisterWindow, register_window

_POINT = (quasi(LV_GEN_ROW), quasi(LV_GEN_COL))


def fuse_generic(program: Program, target: SpatialTarget) -> Program:
    """The section without the cuts that can be undone."""
    shape = section_of(program, "FUSED")
    tried = tuple(_without_cuts(each, target) for each in in_each_window(shape, target))
    return with_section(program, with_least_cycles(program, tried, target), "FUSED")


def _without_cuts(shape: Shape, target: SpatialTarget) -> Shape:
    for carry in shape.carries:
        if carry.cut and carry.dtype == shape.numerics.accumulator:
            shape = _without(shape, carry, target)
    return shape


def _without(shape: Shape, carry: Carry, target: SpatialTarget) -> Shape:
    """The shape with the carry substituted away, or as it is where the rules forbid that."""
    groups, done = [], False
    for group in shape.groups:
        stages = []
        for stage in group.stages:
            body = _undo(stage, carry.name, register_window(shape, stage, target))
            done = done or body is not None
            stages.append(stage if body is None else replace(stage, body=body))
        groups.append(replace(group, stages=tuple(stages)))
    if not done:
        return shape
    return replace(shape, groups=tuple(groups), carries=tuple(c for c in shape.carries if c.name != carry.name))


def _undo(stage: Stage, name: str, window: RegisterWindow) -> tuple[Node, ...] | None:
    """The stage's body with every use of the carry replaced by its value; None where that is not allowed."""
    uses = _uses(stage.body, name)
    if uses is None or len(uses) < 2:
        return None
    made, readers = uses[0], uses[1:]
    if made.dst.name != name or name in names(made.expr):
        return None
    if _occurrences(readers, name) > 1 and _operators(made.expr) > 1:
        return None
    if not _undisturbed(stage.body, Compute(made), Compute(readers[-1]), set(names(made.expr))):
        return None
    fused: dict[Node, Node] = {}
    for reader in readers:
        together = _fused(made, reader)
        if together is None or not window.fits(together):
            return None
        fused[Compute(reader)] = Compute(together)

    def change(node: Node) -> tuple[Node, ...]:
        if node == Compute(made) or node == Init(name):
            return ()
        return (fused.get(node, node),) if isinstance(node, Compute) else (node,)

    return rebuild(stage.body, change)


def _uses(body: tuple[Node, ...], name: str) -> list[Generic] | None:
    """The Generics that write or read the carry, in written order; None where anything else does, or in other loops."""
    found, nests = [], set()
    for nest, step in leaves(body):
        if isinstance(step, Compute) and (step.op.dst.name == name or name in operands(step.op)):
            if not isinstance(step.op, Generic):
                return None
            found.append(step.op)
            nests.add(nest)
    return found if len(nests) == 1 else None


def _fused(made: Generic, reader: Generic) -> Generic | None:
    """The reader with the made value in place of the carry; None where they do not match point by point."""
    carry = made.dst
    same_points = (made.rows, made.cols, made.guard) == (reader.rows, reader.cols, reader.guard)
    reads = [e for e in walk(reader.expr) if isinstance(e, At) and e.name == carry.name]
    at_point = all(e.index == (_POINT[0] + carry.row, _POINT[1] + carry.col) for e in reads)
    reductions = sum(isinstance(e, Reduce) for expr in (made.expr, reader.expr) for e in walk(expr))
    if not same_points or not reads or not at_point or reader.dst.name == carry.name:
        return None
    if reductions > 1 or _inside_reduce(reader.expr, carry.name):
        return None
    return replace(reader, expr=replace_operands(reader.expr, lambda e: made.expr if e.name == carry.name else e))


def _inside_reduce(expr: Expr, name: str) -> bool:
    return any(isinstance(e, Reduce) and name in names(e.body) for e in walk(expr))


def _occurrences(readers: list[Generic], name: str) -> int:
    return sum(isinstance(e, At) and e.name == name for reader in readers for e in walk(reader.expr))


def _operators(expr: Expr) -> int:
    return sum(isinstance(e, Fn | Reduce) for e in walk(expr))


def _undisturbed(body: tuple[Node, ...], first: Compute, last: Compute, read: set[str]) -> bool:
    """Both steps once, in one list, and between them nothing that changes what the value reads."""
    for node in body:
        if isinstance(node, Loop) and any(step == first for _, step in leaves(node.body)):
            return _undisturbed(node.body, first, last, read)
    if body.count(first) != 1 or body.count(last) != 1:
        return False
    between = body[body.index(first) + 1 : body.index(last)]
    return not any(_disturbs(node, read) for node in between)


def _disturbs(node: Node, read: set[str]) -> bool:
    if isinstance(node, Loop):
        return True
    if isinstance(node, Compute):
        return node.op.dst.name in read
    if isinstance(node, Init):
        return node.carry in read
    return isinstance(node, Front | Pop | Push | Reserve) and node.fifo in read
