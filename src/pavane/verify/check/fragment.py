"""The fragment: which programs the checker reasons about at all. Everything else is refused with `OutsideFragment`.

`admit` re-decodes the program from its own canonical bytes, so that every later rule works on values of the grammar
and of their types, then checks structure: names resolve and are unique, sizes are bounded, loops have distinct
variables and symbolic extents of at least 1, every expression uses only variables that are in scope, windows and
references have the rank of what they name. After it no lookup of a name can fail. It proves nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from pavane.ir.digest import canonical_bytes
from pavane.ir.expr import At, Const, Expr, Fn, Indirect, Reduce, Var, children
from pavane.ir.program import (
    FORMAT_VERSION,
    GENERIC_VARIABLES,
    LOOP_VARIABLES,
    LV_GEN_K,
    SITE_X,
    SITE_Y,
    Compute,
    Generic,
    Init,
    Load,
    Loop,
    MatmulTiles,
    Node,
    Post,
    Process,
    Program,
    Rect,
    Ref,
    Run,
    Send,
    Shape,
    Span,
    Step,
    Store,
    Tensor,
    Wait,
    Window,
)
from pavane.ir.quasi import Domain, Floor, Quasi, lower, upper
from pavane.ir.types import INTEGER_DTYPES, Q8_BLOCK, Ints
from pavane.ir.types import Const as ConstantFill
from pavane.ir.walk import symbol_domain
from pavane.reject import OutsideFragment
from pavane.targets.descriptor import SpatialTarget

MAX_BYTES = 64 << 20
MAX_INT = 1 << 40
MAX_LEAVES, MAX_NEST, MAX_EXPR_NODES, MAX_EXPR_DEPTH = 4096, 12, 4096, 64
MAX_QUASI_ATOMS, MAX_QUASI_FLOORS, MAX_QUASI_DEPTH = 24, 6, 6
MAX_INSTANCES, MAX_SHAPES, MAX_WORKERS, MAX_NAMED = 1 << 14, 256, 32, 128
MAX_POSTS = 1 << 20
MAX_BUFFER_SIDE = 1 << 24
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,199}")
_RESERVED = frozenset((*LOOP_VARIABLES, *GENERIC_VARIABLES, SITE_X, SITE_Y))


def admit(program: Program, target: SpatialTarget) -> Program:
    """The same program, decoded afresh, with its structure checked. Raises OutsideFragment."""
    program = _decoded(program)
    if program.version != FORMAT_VERSION:
        raise OutsideFragment(f"format version {program.version} is not {FORMAT_VERSION}", where=program.name)
    if program.phase not in ("PERSISTENT", "VERIFIED"):
        raise OutsideFragment(
            f"a program at {program.phase} has no written order yet", remedy="run the passes up to persist"
        )
    if program.edges or program.waves:
        raise OutsideFragment("forwarded edges and waves are not in the fragment", where=program.name)
    _program_names(program)
    domain = _symbols(program)
    for tensor in program.tensors:
        _tensor(tensor, domain)
    for shape in program.shapes:
        _shape(shape, domain)
    _instances(program)
    _workers(program, target)
    return program


def _decoded(program: Program) -> Program:
    try:
        data = canonical_bytes(program)
        if len(data) > MAX_BYTES:
            raise OutsideFragment(
                "the program is too large", needed=f"{len(data)} bytes", available=f"{MAX_BYTES} bytes"
            )
        return msgspec.json.decode(data, type=Program)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OutsideFragment(f"the program is not a value of the grammar: {error}") from error


# --- names ------------------------------------------------------------------------------------------------------------


def _unique(names: Iterable[str], kind: str, where: str, most: int = MAX_NAMED) -> None:
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise OutsideFragment(f"{name[:40]!r} cannot name a {kind}", where=where, remedy="letters, digits, _ . -")
        if name in seen:
            raise OutsideFragment(f"two {kind}s are named {name}", where=where)
        seen.add(name)
    if len(seen) > most:
        raise OutsideFragment(f"too many {kind}s", where=where, needed=str(len(seen)), available=str(most))


def _program_names(program: Program) -> None:
    where = f"program {program.name}"
    _unique((t.name for t in program.tensors), "tensor", where, MAX_INSTANCES)
    _unique((s.name for s in program.shapes), "shape", where, MAX_SHAPES)
    _unique((c.name for c in program.counters), "counter", where)
    _unique((w.name for w in program.workers), "worker", where, MAX_WORKERS)
    if not program.instances or len(program.instances) > MAX_INSTANCES:
        raise OutsideFragment("a program has 1 to 16,384 sections", where=where, needed=str(len(program.instances)))


def _symbols(program: Program) -> Domain:
    _unique((s.name for s in program.symbols), "symbol", f"program {program.name}", 16)
    for symbol in program.symbols:
        if symbol.name in _RESERVED or re.fullmatch(r"i[0-9]+", symbol.name):
            raise OutsideFragment(f"{symbol.name} cannot name a symbol: it is a variable of the grammar")
        if not -MAX_INT <= symbol.lo <= symbol.hi <= MAX_INT:
            raise OutsideFragment(f"symbol {symbol.name} has no usable range", needed=f"{symbol.lo} .. {symbol.hi}")
    return symbol_domain(program)


# --- tensors and shapes -----------------------------------------------------------------------------------------------


def _tensor(tensor: Tensor, domain: Domain) -> None:
    where = f"tensor {tensor.name}"
    _extents(tensor.shape, tensor.dtype, domain, where)
    _fill(tensor.fill, where)
    if tensor.transition is not None:
        _in_scope((tensor.transition.row, tensor.transition.rows), domain.names(), where)
    _integers((tensor.offset,), where)


def _extents(shape: tuple[Quasi, ...], dtype: str, domain: Domain, where: str) -> None:
    if not 1 <= len(shape) <= 8:
        raise OutsideFragment("a tensor has 1 to 8 dimensions", where=where, needed=str(len(shape)))
    _in_scope(shape, domain.names(), where)
    if any(lower(extent, domain) < 1 for extent in shape):
        raise OutsideFragment("an extent may be below 1", where=where)
    if math.prod(upper(extent, domain) for extent in shape) > MAX_INT:
        raise OutsideFragment("a tensor is too large", where=where, available=f"{MAX_INT} elements")
    if dtype == "q8_0" and not (shape[-1].is_const and shape[-1].const % Q8_BLOCK == 0):
        raise OutsideFragment(
            "the last extent of a q8_0 tensor is not a multiple of 32", where=where, needed=str(shape[-1])
        )


def _fill(fill: object, where: str) -> None:
    if isinstance(fill, Ints) and not -MAX_INT <= fill.lo <= fill.hi <= MAX_INT:
        raise OutsideFragment(f"integers {fill.lo} .. {fill.hi} are no fill", where=where)
    if isinstance(fill, ConstantFill) and not math.isfinite(fill.value):
        raise OutsideFragment("a constant fill is not finite", where=where)


def _shape(shape: Shape, domain: Domain) -> None:
    where = f"section shape {shape.name}"
    if shape.groups or not shape.processes or shape.ports:
        raise OutsideFragment("a shape has processes, no groups and no ports", where=where)
    _unique((f.name for f in shape.formals), "formal", where)
    _unique([f.name for f in shape.fifos] + [c.name for c in shape.carries], "buffer", where)
    _unique((c.name for c in shape.counters), "counter", where)
    _unique((p.name for p in shape.processes), "process", where, MAX_WORKERS)
    for formal in shape.formals:
        _extents(formal.shape, formal.dtype, domain, f"{where}, formal {formal.name}")
        _fill(formal.fill, f"{where}, formal {formal.name}")
    _buffers(shape, where)
    _specs(shape, domain, where)
    if sum(1 for p in shape.processes for _ in _steps(p.body, ())) > MAX_LEAVES:
        raise OutsideFragment(f"a shape has more than {MAX_LEAVES} steps", where=where)
    for process in shape.processes:
        _process(shape, process, domain, where)


def _buffers(shape: Shape, where: str) -> None:
    for fifo in shape.fifos:
        if fifo.kind == "FORWARDED":
            raise OutsideFragment("forwarded FIFOs are not in the fragment", where=f"{where}, FIFO {fifo.name}")
        _side(fifo.rows, fifo.cols, fifo.dtype, f"{where}, FIFO {fifo.name}")
        _integers((fifo.depth, fifo.address), f"{where}, FIFO {fifo.name}")
    for carry in shape.carries:
        _side(carry.rows, carry.cols, carry.dtype, f"{where}, carry {carry.name}")
        _integers((carry.address,), f"{where}, carry {carry.name}")
        if not math.isfinite(carry.initial):
            raise OutsideFragment("a carry's initial value is not finite", where=f"{where}, carry {carry.name}")
    for counter in shape.counters:
        _integers((counter.ahead, counter.bits, counter.id), f"{where}, counter {counter.name}")


def _side(rows: int, cols: int, dtype: str, where: str) -> None:
    if not (1 <= rows <= MAX_BUFFER_SIDE and 1 <= cols <= MAX_BUFFER_SIDE):
        raise OutsideFragment(f"{rows} x {cols} is no size of a buffer", where=where)
    if dtype == "q8_0" and cols % Q8_BLOCK:
        raise OutsideFragment("the columns of a q8_0 buffer are not a multiple of 32", where=where, needed=str(cols))


def _integers(values: Iterable[int], where: str) -> None:
    if any(abs(value) > MAX_INT for value in values):
        raise OutsideFragment("a figure is too large", where=where)


def _specs(shape: Shape, domain: Domain, where: str) -> None:
    formals = {f.name: f for f in shape.formals}
    outs = [spec.out for spec in shape.spec]
    if len(set(outs)) != len(outs):
        raise OutsideFragment("two specs write one formal", where=where)
    for spec in shape.spec:
        place = f"{where}, spec of {spec.out}"
        if spec.out not in formals or formals[spec.out].role == "IN":
            raise OutsideFragment(f"{spec.out} is no formal that may be written", where=place)
        rank = len(formals[spec.out].shape)
        if len(spec.origin) != rank or len(spec.extents) != rank:
            raise OutsideFragment(f"origin and extents do not have {rank} dimensions", where=place)
        _in_scope((*spec.origin, *spec.extents), domain.names(), place)
        variables = (*domain.names(), *(f"i{d}" for d in range(rank)))
        bound: set[str] = set()
        _expression(spec.expr, variables, {name: len(f.shape) for name, f in formals.items()}, place, bound, spec=True)


# --- processes --------------------------------------------------------------------------------------------------------


def _steps(body: tuple[Node, ...], nest: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Step]]:
    if len(nest) > MAX_NEST:
        raise OutsideFragment(f"loops are nested more than {MAX_NEST} deep")
    if not body:
        raise OutsideFragment("a loop or a process has no steps")
    for node in body:
        if isinstance(node, Loop):
            yield from _steps(node.body, (*nest, node))
        else:
            yield nest, node


def _process(shape: Shape, process: Process, domain: Domain, where: str) -> None:
    place = f"{where}, process {process.name}"
    outer = domain.names()
    for nest, step in _steps(process.body, ()):
        names = [loop.var for loop in nest]
        if len(set(names)) != len(names) or any(name not in LOOP_VARIABLES for name in names):
            raise OutsideFragment(f"the loop variables {', '.join(names)} are not distinct fixed names", where=place)
        for loop in nest:
            _in_scope((loop.extent,), outer, place)
            if lower(loop.extent, domain) < 1:
                raise OutsideFragment(
                    f"the loop over {loop.var} may have no turn", where=place, needed=f"{loop.extent} >= 1"
                )
            if upper(loop.extent, domain) > MAX_INT:
                raise OutsideFragment(f"the loop over {loop.var} has too many turns", where=place)
        _step(shape, step, (*outer, SITE_X, SITE_Y, *names), place)


def _step(shape: Shape, step: Step, scope: tuple[str, ...], where: str) -> None:
    fifos = {f.name for f in shape.fifos}
    carries = {c.name for c in shape.carries}
    if isinstance(step, Post | Wait):
        _known(step.counter, {c.name for c in shape.counters}, "counter", where)
        if not 1 <= step.n <= MAX_POSTS:
            raise OutsideFragment(f"{step.n} is no number of posts", where=where)
    elif isinstance(step, Init):
        _known(step.carry, carries, "carry", where)
    elif isinstance(step, Compute):
        _op(step.op, fifos | carries, scope, where)
    elif hasattr(step, "fifo"):
        _known(step.fifo, fifos, "FIFO", where)
    if isinstance(step, Post | Send):
        _rect(step.to, scope, where)
    if isinstance(step, Load | Store):
        _window(shape, step, scope, where)


def _known(name: str, names: set[str], kind: str, where: str) -> None:
    if name not in names:
        raise OutsideFragment(f"there is no {kind} {name[:60]!r}", where=where)


def _rect(rect: Rect, scope: tuple[str, ...], where: str) -> None:
    _in_scope((rect.x0, rect.x1, rect.y0, rect.y1), scope, where)


def _window(shape: Shape, step: Load | Store, scope: tuple[str, ...], where: str) -> None:
    formals = {f.name: f for f in shape.formals}
    _known(step.tensor, set(formals), "formal", where)
    window: Window = step.window
    rank = len(formals[step.tensor].shape)
    if len(window.start) != rank or len(window.size) != rank or not -1 <= window.row < rank - 1:
        raise OutsideFragment(f"a window of {step.tensor} does not have its {rank} dimensions", where=where)
    for dimension, size in enumerate(window.size):
        if not 1 <= size <= MAX_BUFFER_SIDE or (size != 1 and dimension not in (window.row, rank - 1)):
            raise OutsideFragment(f"a window of {step.tensor} is {size} long in dimension {dimension}", where=where)
    for start in window.start:
        _index(start, scope, where)
        if isinstance(start, Indirect):
            _indirect(shape, step, start, where)
    if isinstance(step, Load):
        _in_scope((step.row,), scope, where)


def _indirect(shape: Shape, step: Load | Store, index: Indirect, where: str) -> None:
    if isinstance(step, Store):
        raise OutsideFragment("an indirect write is not in the fragment", where=where)
    _known(index.tensor, {f.name for f in shape.formals}, "formal", where)
    _known(index.via, {f.name for f in shape.fifos}, "FIFO", where)


def _op(op: Generic | MatmulTiles, buffers: set[str], scope: tuple[str, ...], where: str) -> None:
    refs = (op.dst,) if isinstance(op, Generic) else (op.dst, op.a, op.b)
    spans = (op.rows, op.cols, *op.guard) if isinstance(op, Generic) else (op.rows, op.cols, op.k, *op.guard)
    for ref in refs:
        _ref(ref, buffers, scope, where)
    for span in spans:
        _span(span, scope, where)
    if isinstance(op, Generic):
        bound: set[str] = set()
        inside = (*scope, *GENERIC_VARIABLES[:2])
        _expression(op.expr, inside, dict.fromkeys(buffers, 2), where, bound, spec=False)
    elif op.tree.lanes < 1 or op.tree.atom < 0:
        raise OutsideFragment("a reduction tree has no lanes or a negative atom", where=where)


def _ref(ref: Ref, buffers: set[str], scope: tuple[str, ...], where: str) -> None:
    _known(ref.name, buffers, "buffer", where)
    _in_scope((ref.row, ref.col), scope, where)


def _span(span: Span, scope: tuple[str, ...], where: str) -> None:
    if not 1 <= span.size <= MAX_BUFFER_SIDE:
        raise OutsideFragment(f"a span is {span.size} long", where=where)
    _in_scope((span.start, span.limit), scope, where)


# --- expressions ------------------------------------------------------------------------------------------------------


def _expression(
    expr: Expr, scope: tuple[str, ...], ranks: dict[str, int], where: str, bound: set[str], spec: bool
) -> None:
    """Walk without recursion; each node with the variables in scope there and its depth."""
    stack: list[tuple[Expr, tuple[str, ...], int]] = [(expr, scope, 0)]
    count = 0
    while stack:
        node, inside, depth = stack.pop()
        count += 1
        if count > MAX_EXPR_NODES or depth > MAX_EXPR_DEPTH:
            raise OutsideFragment("an expression is too large", where=where, available=f"{MAX_EXPR_NODES} nodes")
        if isinstance(node, Const) and not math.isfinite(node.value):
            raise OutsideFragment("a constant is not finite", where=where)
        if isinstance(node, Var):
            _in_scope((node.value,), inside, where)
        elif isinstance(node, At):
            _operand(node, inside, ranks, where, spec)
        elif isinstance(node, Fn) and node.op == "cast" and node.dtype not in INTEGER_DTYPES:
            raise OutsideFragment(f"a cast to {node.dtype!r}", where=where)
        elif isinstance(node, Reduce):
            _bind(node, inside, where, bound, spec)
            inside = (*inside, node.var)
        stack.extend((child, inside, depth + 1) for child in children(node))


def _operand(node: At, scope: tuple[str, ...], ranks: dict[str, int], where: str, spec: bool) -> None:
    if ranks.get(node.name) != len(node.index):
        raise OutsideFragment(f"{node.name[:60]} is not an operand of {len(node.index)} dimensions", where=where)
    if node.next:
        raise OutsideFragment(f"{node.name} after its transition is read in the section that writes it", where=where)
    for index in node.index:
        if isinstance(index, Indirect) and not spec:
            raise OutsideFragment("an indirect index inside a compute step", where=where)
        _index(index, scope, where)
        if isinstance(index, Indirect):
            _known(index.tensor, set(ranks), "formal", where)


def _bind(node: Reduce, scope: tuple[str, ...], where: str, bound: set[str], spec: bool) -> None:
    _in_scope((node.extent,), scope, where)
    if spec:
        if node.var in scope or node.var in bound or node.var in _RESERVED or not _NAME.fullmatch(node.var):
            raise OutsideFragment(f"the reduction variable {node.var[:40]!r} is used twice or reserved", where=where)
    elif node.var != LV_GEN_K or bound:
        raise OutsideFragment("a compute step has one reduction, over LV_GEN_K", where=where)
    bound.add(node.var)


def _index(index: Quasi | Indirect, scope: tuple[str, ...], where: str) -> None:
    if isinstance(index, Quasi):
        _in_scope((index,), scope, where)
        return
    _in_scope(index.index, scope, where)
    if not 0 <= index.lo < index.hi <= MAX_INT:
        raise OutsideFragment(f"an indirect index in [{index.lo}, {index.hi})", where=where)


def _in_scope(values: Iterable[Quasi], scope: tuple[str, ...], where: str) -> None:
    for value in values:
        atoms, floors = _measured(value, 0, where)
        if atoms > MAX_QUASI_ATOMS or floors > MAX_QUASI_FLOORS:
            raise OutsideFragment(
                "an index expression is too large", where=where, needed=f"{atoms} terms, {floors} floors"
            )
        for name in value.variables():
            if name not in scope:
                raise OutsideFragment(f"the variable {name[:60]!r} has no meaning here", where=where)


def _measured(value: Quasi, depth: int, where: str) -> tuple[int, int]:
    if depth > MAX_QUASI_DEPTH or abs(value.const) > MAX_INT:
        raise OutsideFragment("an index expression is too deep or too large", where=where)
    atoms, floors = 0, 0
    for coefficient, atom in value.terms:
        atoms += 1
        if abs(coefficient) > MAX_INT:
            raise OutsideFragment("an index expression has too large a coefficient", where=where)
        if isinstance(atom, Floor):
            inner = _measured(atom.numerator, depth + 1, where)
            atoms, floors = atoms + inner[0], floors + 1 + inner[1]
            if atom.divisor > MAX_INT:
                raise OutsideFragment("an index expression divides by too large a number", where=where)
    return atoms, floors


# --- instances and workers --------------------------------------------------------------------------------------------


def _instances(program: Program) -> None:
    shapes = {s.name: s for s in program.shapes}
    tensors = {t.name for t in program.tensors}
    for number, instance in enumerate(program.instances):
        where = f"section {number} ({instance.name or instance.shape})"
        _known(instance.shape, set(shapes), "shape", where)
        if instance.home is not None:
            raise OutsideFragment("a section with a home of its own is not in the fragment", where=where)
        formals = sorted(f.name for f in shapes[instance.shape].formals)
        if sorted(b.formal for b in instance.bindings) != formals:
            raise OutsideFragment(
                "each formal is bound once and nothing else is", where=where, needed=", ".join(formals)
            )
        for binding in instance.bindings:
            _known(binding.tensor, tensors, "tensor", where)


def _workers(program: Program, target: SpatialTarget) -> None:
    engines = {e.name for e in target.engines}
    counters = {c.name for c in program.counters}
    for worker in program.workers:
        where = f"worker {worker.name}"
        _known(worker.engine, engines, "engine", where)
        for turn in worker.body:
            if isinstance(turn, Run):
                if not 0 <= turn.instance < len(program.instances):
                    raise OutsideFragment(f"there is no section {turn.instance}", where=where)
            else:
                _known(turn.counter, counters, "counter", where)
                if not 1 <= turn.n <= MAX_POSTS:
                    raise OutsideFragment(f"{turn.n} is no number of posts", where=where)
    for counter in program.counters:
        _integers((counter.ahead, counter.bits, counter.id), f"counter {counter.name}")
