"""A program as people read it: `show(program)`, and what changed between two of them: `show_difference(before, after)`.

The text holds all that the program holds except digests of parts; it is for reading and for golden tests, and is
never parsed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pavane.ir.digest import program_digest
from pavane.ir.program import (
    Carry,
    Counter,
    Do,
    Fifo,
    Formal,
    Plan,
    Process,
    Program,
    Run,
    Shape,
    Stage,
    Tensor,
    Turns,
    Worker,
)
from pavane.ir.text_steps import Words
from pavane.ir.types import Const, Fill, Ints, row_bytes

_RULER = "  {:<8}{}"


def show(program: Program) -> str:
    """The whole program."""
    return "\n".join(_program(program)) + "\n"


def show_section(program: Program, name: str) -> str:
    """One shape of the program. KeyError when it has none of that name."""
    for shape in program.shapes:
        if shape.name == name:
            return "\n".join(_section(shape, _symbols(program))) + "\n"
    raise KeyError(name)


def show_difference(before: Program, after: Program, names: tuple[str, str] = ("before", "after")) -> str:
    """What a pass changed: the lines taken out and put in, with three lines around each; empty when nothing changed."""
    old, new = show(before).splitlines(keepends=True), show(after).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, *names))


def _program(program: Program) -> Iterator[str]:
    words = Words(_symbols(program))
    yield f"program {program.name} at {program.phase} for {program.target}, {program_digest(program)[:16]}"
    for symbol in program.symbols:
        yield _RULER.format("symbol", f"{symbol.name} in {symbol.lo}..{symbol.hi}, expected {symbol.expected}")
    for tensor in program.tensors:
        yield _RULER.format("tensor", _tensor(tensor, words))
    for number, instance in enumerate(program.instances):
        bound = ", ".join(f"{b.formal}={b.tensor}" for b in instance.bindings)
        name = "" if instance.name in ("", instance.shape) else f" as {instance.name}"
        wave = "" if instance.wave < 0 else f" in wave {instance.wave}"
        yield _RULER.format("do", f"{number}: {instance.shape}({bound}){name}{wave}")
    for shape in program.shapes:
        yield ""
        yield from _section(shape, _symbols(program))
    if program.workers or program.counters:
        yield ""
        yield from (_RULER.format("counter", _counter(counter, words)) for counter in program.counters)
        for worker in program.workers:
            yield from _worker(worker, words)
    if program.certificate is not None:
        yield ""
        yield from _certificate(program, words)


def _symbols(program: Program) -> tuple[str, ...]:
    return tuple(symbol.name for symbol in program.symbols)


def _tensor(tensor: Tensor, words: Words) -> str:
    text = f"{tensor.name}: {tensor.role} {tensor.dtype}[{words.extents_text(tensor.shape)}]{_fill(tensor.fill)}"
    if tensor.transition is not None:
        text += f", writes rows {words.index(tensor.transition.row)}+:{words.index(tensor.transition.rows)}"
    if tensor.home == "sites":
        text += ", a copy on every site"
    if tensor.home == "sharded":
        text += f", sharded in blocks of {tensor.shard_bytes} bytes"
    if tensor.interleave_bytes:
        text += f", {tensor.interleave_bytes:,} B a channel in turn"
    if tensor.offset < 0:
        return text
    return f"{text}, at {tensor.offset:#x} of " + ("the arena" if tensor.home == "dram" else "every site")


def _fill(fill: Fill) -> str:
    if isinstance(fill, Ints):
        return f" ints {fill.lo}..{fill.hi}"
    return f" = {fill.value:g}" if isinstance(fill, Const) else ""


def _section(shape: Shape, symbols: tuple[str, ...]) -> Iterator[str]:
    words = Words(symbols, {formal.name: formal.shape for formal in shape.formals})
    read = ", ".join(_formal(f, words) for f in shape.formals if f.role != "OUT")
    written = ", ".join(_formal(f, words) for f in shape.formals if f.role == "OUT")
    yield f"section {shape.name}({read})" + (f" -> {written}" if written else "")
    for spec in shape.spec:
        where = ",".join(_coordinate(words.index(origin), f"i{number}") for number, origin in enumerate(spec.origin))
        yield _RULER.format(
            "spec", f"{spec.out}[{where}] = {words.expr(spec.expr)} for i < {words.extents_text(spec.extents)}"
        )
    yield _RULER.format("numeric", _numerics(shape))
    if shape.sites:
        yield _RULER.format("sites", " ".join(f"({x}, {y})" for x, y in shape.sites))
    items = shape.items
    yield _RULER.format("items", f"y<{words.index(items.y)}, x<{words.index(items.x)}, each {items.rows}x{items.cols}")
    if shape.plan is not None:
        yield _RULER.format("plan", plan_text(shape.plan))
    for join in shape.joins:
        yield _RULER.format(
            "join", f"{join.what}: {join.taken} {join.cycles:,} cycles; {join.other} {join.other_cycles:,}"
        )
    yield from (_RULER.format("fifo", _fifo(fifo)) for fifo in shape.fifos)
    yield from (_RULER.format("carry", _carry(carry)) for carry in shape.carries)
    yield from (_RULER.format("counter", _counter(counter, words)) for counter in shape.counters)
    yield from _stages(shape, words)


def _coordinate(origin: str, name: str) -> str:
    return name if origin == "0" else f"{origin}+{name}"


def _formal(formal: Formal, words: Words) -> str:
    state = "state " if formal.role == "STATE" else ""
    home = {"dram": "", "sites": " here", "sharded": f" sharded by {formal.shard_bytes}"}[formal.home]
    return f"{state}{formal.name}: {formal.dtype}[{words.extents_text(formal.shape)}]{_fill(formal.fill)}{home}"


def _numerics(shape: Shape) -> str:
    numbers = shape.numerics
    operands = ", ".join(f"{name} as {dtype}" for name, dtype in numbers.operands)
    parts = [numbers.contract, operands, f"adds in {numbers.accumulator}", "exact" if numbers.exact else ""]
    return "; ".join(part for part in (*parts, *numbers.terms) if part)


def plan_text(plan: Plan) -> str:
    """What was chosen, what it beat, and what bounds it."""
    text = f"block {plan.rows}x{plan.cols}, k {plan.k}: {plan.cycles:,} cycles"
    if plan.bottleneck:
        text += f", bound by {plan.bottleneck}"
    if plan.runner_up is not None:
        rows, cols, k = plan.runner_up
        text += f"; before {rows}x{cols}, k {k}: {plan.runner_up_cycles:,} cycles"
    return f"{text} ({plan.considered} considered)" if plan.considered else text


def _fifo(fifo: Fifo) -> str:
    text = f"{fifo.name}: {fifo.kind.lower().replace('_', ' ')} {fifo.rows}x{fifo.cols} {fifo.dtype}"
    text += f" depth {fifo.depth}" if fifo.depth else ""
    return f"{text}{_place(fifo.address, max(1, fifo.depth) * fifo.rows * row_bytes(fifo.dtype, fifo.cols))}"


def _carry(carry: Carry) -> str:
    cut = ", a cut" if carry.cut else ""
    text = f"{carry.name}: {carry.rows}x{carry.cols} {carry.dtype} = {carry.initial:g}{cut}"
    return f"{text}{_place(carry.address, carry.rows * row_bytes(carry.dtype, carry.cols))}"


def _place(address: int, size_bytes: int) -> str:
    return "" if address < 0 else f" at {address:#06x} ({size_bytes:,} B)"


def _counter(counter: Counter, words: Words) -> str:
    text = f"{counter.name}: {counter.kind.lower()}, {counter.bits} bits, on {words.sites(counter.rect)}"
    text += f", waited for by {counter.engine}"
    text += f", {counter.ahead} ahead" if counter.ahead else ""
    return text if counter.id < 0 else f"{text}, number {counter.id}"


def _stages(shape: Shape, words: Words) -> Iterator[str]:
    for group in shape.groups:
        yield _RULER.format("group", f"{group.name} {words.sites(group.rect)}, items {group.rule.lower()}")
        for stage in group.stages:
            yield f"    stage {stage.name} on {stage.engine}{_registers(stage)}"
            yield from ("      " + line for line in words.body(stage.body))
    for process in shape.processes:
        where = f"{process.name} {words.sites(process.rect)} on {process.engine}{_registers(process)}"
        yield _RULER.format("process", where)
        yield from ("    " + line for line in words.body(process.body))


def _registers(part: Stage | Process) -> str:
    return ", registers in full sync" if part.registers == "FULL" else ""


def _worker(worker: Worker, words: Words) -> Iterator[str]:
    yield f"worker {worker.name} {words.sites(worker.rect)} on {worker.engine}"
    line = ""
    for turn in worker.body:
        text = f"run {turn.instance}.{turn.process}" if isinstance(turn, Run) else words.step(turn)
        if line and len(line) + len(text) > 120:
            yield f"  {line};"
            line = text
        else:
            line = f"{line}; {text}" if line else text
    yield f"  {line}"


def _certificate(program: Program, words: Words) -> Iterator[str]:
    certificate = program.certificate
    if certificate is None:
        return
    yield f"certificate of {certificate.program[:16]} on {certificate.target[:16]}"
    processes = {shape.name: tuple(p.name for p in shape.processes) for shape in program.shapes}
    for schedule in certificate.schedules:
        yield f"  schedule of {schedule.shape}"
        yield from ("    " + line for line in _schedule(schedule.schedule, processes.get(schedule.shape, ()), words))


def _schedule(body: tuple[Do | Turns, ...], processes: tuple[str, ...], words: Words) -> Iterator[str]:
    for item in body:
        if isinstance(item, Turns):
            yield f"for {words.names.get(item.var, item.var)}<{words.index(item.extent)}:"
            yield from ("  " + line for line in _schedule(item.body, processes, words))
        else:
            name = processes[item.process] if 0 <= item.process < len(processes) else f"process {item.process}"
            yield f"{name}: steps {item.first}..{item.last}"
