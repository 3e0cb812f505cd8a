"""Which variables an index may use, at each place.

tensors, formals, extents and origins of specs    symbols
a spec's expression                               symbols, i0 .. i(rank-1), the reductions around
loop extents                                      symbols, the loops around (not SITE: they are equal on every site)
windows, spans, places                            symbols, the loops around, SITE_X and SITE_Y from PLACED on
a Generic's expression                            those, LV_GEN_ROW, LV_GEN_COL; LV_GEN_K inside its reduction
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pavane.ir.expr import At, Const, Expr, Fn, Index, Indirect, Reduce, Var
from pavane.ir.program import (
    GENERIC_VARIABLES,
    LOOP_VARIABLES,
    LV_GEN_COL,
    LV_GEN_K,
    LV_GEN_ROW,
    LV_ITEM_X,
    LV_ITEM_Y,
    SITE_X,
    SITE_Y,
    Compute,
    Generic,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Post,
    Program,
    Rect,
    Ref,
    Send,
    Span,
    Step,
    Store,
    Window,
)
from pavane.ir.quasi import Quasi
from pavane.validate.section import Section, level_of
from pavane.validate.violation import Finding, RuleTable

RESERVED = (*LOOP_VARIABLES, *GENERIC_VARIABLES, SITE_X, SITE_Y)


def symbols(program: Program) -> Iterator[Finding]:
    """A symbol is a name of its own, with a range that is not empty."""
    for symbol in program.symbols:
        place = f"symbol {symbol.name}"
        if symbol.name in RESERVED or _is_coordinate(symbol.name):
            yield place, "the name is reserved for a variable of the grammar"
        if not 0 <= symbol.lo <= symbol.expected <= symbol.hi < 1 << 31:
            yield place, f"0 <= lo {symbol.lo} <= expected {symbol.expected} <= hi {symbol.hi} < 2**31 does not hold"


def _is_coordinate(name: str) -> bool:
    return name[:1] == "i" and name[1:].isdecimal()


def tensors(program: Program) -> Iterator[Finding]:
    """Extents and transitions of tensors depend on symbols only."""
    known = tuple(s.name for s in program.symbols)
    for tensor in program.tensors:
        values = [*tensor.shape]
        if tensor.transition is not None:
            values += [tensor.transition.row, tensor.transition.rows]
        yield from _unknown(f"tensor {tensor.name}", values, known)


def worker_posts(program: Program) -> Iterator[Finding]:
    """A worker's posts go to places that its own coordinates and the symbols give."""
    known = (*(s.name for s in program.symbols), SITE_X, SITE_Y)
    for worker in program.workers:
        for turn in worker.body:
            if isinstance(turn, Post):
                yield from _unknown(f"worker {worker.name}, post {turn.counter}", _sides(turn.to), known)


def formals(section: Section) -> Iterator[Finding]:
    """Extents of formals, of the work grid, origins and extents of specs depend on symbols only."""
    known = section.symbols.names()
    for formal in section.shape.formals:
        yield from _unknown(f"{section.place}, formal {formal.name}", formal.shape, known)
    yield from _unknown(f"{section.place}, items", (section.shape.items.y, section.shape.items.x), known)
    for spec in section.shape.spec:
        yield from _unknown(f"{section.place}, spec of {spec.out}", (*spec.origin, *spec.extents), known)


def spec_variables(section: Section) -> Iterator[Finding]:
    """A spec uses its coordinates, symbols and the reductions around; reductions have names of their own."""
    for spec in section.shape.spec:
        place = f"{section.place}, spec of {spec.out}"
        known = (*section.symbols.names(), *(f"i{d}" for d in range(len(spec.extents))))
        yield from ((place, message) for message in _expr_faults(spec.expr, known))


def _expr_faults(expr: Expr, known: tuple[str, ...]) -> Iterator[str]:
    if isinstance(expr, Reduce):
        yield from _unknown_texts((expr.extent,), known)
        if expr.var in known or expr.var in RESERVED or _is_coordinate(expr.var):
            yield f"the reduction variable {expr.var!r} has that name already"
        yield from _expr_faults(expr.body, (*known, expr.var))
    elif isinstance(expr, Fn):
        for argument in expr.args:
            yield from _expr_faults(argument, known)
    elif not isinstance(expr, Const):
        yield from _unknown_texts(_indices((expr.value,) if isinstance(expr, Var) else expr.index), known)


def loops(section: Section) -> Iterator[Finding]:
    """Loop variables are of the fixed list, none nested in itself, LV_ITEM_X inside LV_ITEM_Y; extents without SITE."""
    for body in section.bodies:
        yield from ((body.place, message) for message in _loop_faults(body.nodes, section.symbols.names(), ()))


def _loop_faults(nodes: tuple[Node, ...], symbol_names: tuple[str, ...], around: tuple[str, ...]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, Loop):
            continue
        if node.var not in LOOP_VARIABLES:
            yield f"{node.var!r} is not a loop variable; those are {', '.join(LOOP_VARIABLES)}"
        if node.var in around:
            yield f"a loop over {node.var} stands inside a loop over {node.var}"
        if node.var == LV_ITEM_X and LV_ITEM_Y not in around:
            yield "a loop over LV_ITEM_X stands outside LV_ITEM_Y"
        yield from (
            f"the extent of {node.var}: {text}" for text in _unknown_texts((node.extent,), (*symbol_names, *around))
        )
        yield from _loop_faults(node.body, symbol_names, (*around, node.var))


def steps(section: Section) -> Iterator[Finding]:
    """Indices of steps use symbols, the loops around and, from PLACED on, the coordinates of the site."""
    sites = (SITE_X, SITE_Y) if section.level >= level_of("PLACED") else ()
    for body in section.bodies:
        for place, nest, step in body.steps:
            known = (*section.symbols.names(), *sites, *(loop.var for loop in nest))
            yield from _unknown(place, _step_indices(step), known)
            if isinstance(step, Compute) and isinstance(step.op, Generic):
                yield from ((place, text) for text in _generic_faults(step.op.expr, known))


def _generic_faults(expr: Expr, known: tuple[str, ...]) -> Iterator[str]:
    """LV_GEN_K is a variable inside the reduction over it, and nowhere else."""
    inside = (*known, LV_GEN_ROW, LV_GEN_COL)
    stack: list[tuple[Expr, tuple[str, ...]]] = [(expr, inside)]
    while stack:
        node, here = stack.pop()
        if isinstance(node, Reduce):
            yield from _unknown_texts((node.extent,), known)
            stack.append((node.body, (*here, LV_GEN_K)))
        elif isinstance(node, Fn):
            stack.extend((argument, here) for argument in reversed(node.args))
        elif isinstance(node, At | Var):
            yield from _unknown_texts(_indices((node.value,) if isinstance(node, Var) else node.index), here)


def _step_indices(step: Step) -> Iterator[Quasi]:
    if isinstance(step, Load):
        yield from (*_window(step.window), step.row)
    elif isinstance(step, Store):
        yield from _window(step.window)
    elif isinstance(step, Send | Post):
        yield from _sides(step.to)
    elif isinstance(step, Compute):
        op = step.op
        refs: tuple[Ref, ...] = (op.dst, op.a, op.b) if isinstance(op, MatmulTiles) else (op.dst,)
        spans: tuple[Span, ...] = (op.rows, op.cols, *op.guard, *((op.k,) if isinstance(op, MatmulTiles) else ()))
        yield from (q for ref in refs for q in (ref.row, ref.col))
        yield from (q for span in spans for q in (span.start, span.limit))


def _window(window: Window) -> tuple[Quasi, ...]:
    return _indices(window.start)


def _indices(index: Iterable[Index]) -> tuple[Quasi, ...]:
    return tuple(q for i in index for q in (i.index if isinstance(i, Indirect) else (i,)))


def _sides(rect: Rect) -> tuple[Quasi, ...]:
    return rect.x0, rect.x1, rect.y0, rect.y1


def _unknown(place: str, values: Iterable[Quasi], known: tuple[str, ...]) -> Iterator[Finding]:
    yield from ((place, text) for text in _unknown_texts(values, known))


def _unknown_texts(values: Iterable[Quasi], known: tuple[str, ...]) -> Iterator[str]:
    for value in values:
        yield from (f"{name!r} in {value} is not a variable here" for name in value.variables() if name not in known)


PROGRAM_RULES: RuleTable[Program] = (
    ("variables.symbol", symbols),
    ("variables.tensor", tensors),
    ("variables.worker", worker_posts),
)
SECTION_RULES: RuleTable[Section] = (
    ("variables.formal", formals),
    ("variables.spec", spec_variables),
    ("variables.loop", loops),
    ("variables.step", steps),
)
