"""LLVM IR as text: a module, and one function of it at a time.

Values are the text that names them (`%7`, `42`); the writer of a line states its types. Names are numbers in writing
order, so the text is a function of the calls made. A `Code` keeps the block it writes to; `loop` and `when` open and
close blocks. No fast-math flag is ever written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LANES = 16
F32 = f"<{LANES} x float>"
I64 = f"<{LANES} x i64>"
MASK = f"<{LANES} x i1>"


class Module:
    """Functions and declarations, each once, in the order of their first use."""

    def __init__(self) -> None:
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, str] = {}

    def declare(self, name: str, line: str) -> str:
        self._declarations.setdefault(name, line)
        return name

    def has(self, name: str) -> bool:
        return name in self._functions

    def reserve(self, name: str) -> None:
        """The name is taken by a function that is being written."""
        self._functions[name] = ""

    def define(self, name: str, text: str) -> None:
        self._functions[name] = text

    def __str__(self) -> str:
        return "\n".join([*self._declarations.values(), *self._functions.values()]) + "\n"


class Code:
    """One function; its body is written through `value` and `line`.

    `parameters` as LLVM writes them (`ptr %a, i64 %n`); `attributes` begin with `internal` where only the module calls.
    """

    def __init__(self, module: Module, name: str, parameters: str, result: str = "void", attributes: str = "") -> None:
        self.module = module
        self.block = "start"
        self._name = name
        linkage = "internal " if attributes.startswith("internal") else ""
        self._head = f"define {linkage}{result} @{name}({parameters}) {attributes.removeprefix('internal')} {{"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        module.reserve(name)

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self._lines.append("  " + text)

    def value(self, text: str) -> str:
        """The name of what an instruction gives."""
        name = self.fresh()
        self._lines.append(f"  {name} = {text}")
        return name

    def slot(self, kind: str) -> str:
        """A variable of the function, in its entry block (it becomes a register)."""
        name = self.fresh()
        self._slots.append(f"  {name} = alloca {kind}")
        return name

    def label(self) -> str:
        return "b" + self.fresh()[2:]

    def open(self, label: str) -> None:
        """Start writing the block of that label."""
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def finish(self, result: str = "void") -> None:
        """Return, and put the function into its module."""
        body = "\n".join(["entry:", *self._slots, "  br label %start", "start:", *self._lines, f"  ret {result}", "}"])
        self.module.define(self._name, self._head + "\n" + body)

    @contextmanager
    def loop(self, count: str, start: str = "0", step: int | str = 1) -> Iterator[str]:
        """for (i = start; i < count; i += step), signed 64 bits."""
        head, body, after = self.label(), self.label(), self.label()
        index, following = self.fresh(), self.fresh()
        before = self.block
        self.jump(head)
        self.open(head)
        patch = len(self._lines)
        self.line("")
        self.branch(self.value(f"icmp slt i64 {index}, {count}"), body, after)
        self.open(body)
        yield index
        self.line(f"{following} = add nsw i64 {index}, {step}")
        self._lines[patch] = f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]"
        self.jump(head)
        self.open(after)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is written inside runs where the i1 is true."""
        body, after = self.label(), self.label()
        self.branch(condition, body, after)
        self.open(body)
        yield
        self.jump(after)
        self.open(after)

    # --- integers of 64 bits, folded where both are known ---

    def add(self, a: str, b: str) -> str:
        if b == "0":
            return a
        if a == "0":
            return b
        return str(int(a) + int(b)) if _known(a, b) else self.value(f"add nsw i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        if b == "0":
            return a
        return str(int(a) - int(b)) if _known(a, b) else self.value(f"sub nsw i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        b = str(b)
        if "0" in (a, b):
            return "0"
        if b == "1":
            return a
        if a == "1":
            return b
        return str(int(a) * int(b)) if _known(a, b) else self.value(f"mul nsw i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        if _known(a, b):
            return str(min(int(a), int(b)))
        return self.value(f"select i1 {self.value(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def greatest(self, a: str, b: str) -> str:
        if _known(a, b):
            return str(max(int(a), int(b)))
        return self.value(f"select i1 {self.value(f'icmp sgt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def at(self, pointer: str, offset: str) -> str:
        """The address `offset` bytes behind a pointer."""
        return pointer if offset == "0" else self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, kind: str, pointer: str, align: int = 1) -> str:
        return self.value(f"load {kind}, ptr {pointer}, align {align}")

    def store(self, kind: str, value: str, pointer: str, align: int = 1) -> None:
        self.line(f"store {kind} {value}, ptr {pointer}, align {align}")

    def call(self, name: str, result: str, arguments: str, kinds: str) -> str:
        """Call a function that LLVM or the C library has, declaring it."""
        self.module.declare(name, f"declare {result} @{name}({kinds})")
        if result == "void":
            self.line(f"call void @{name}({arguments})")
            return ""
        return self.value(f"call {result} @{name}({arguments})")

    def splat(self, kind: str, lanes: int, value: str) -> str:
        """A vector whose lanes all are `value`."""
        first = self.value(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
        zeros = ", ".join(["i32 0"] * lanes)
        return self.value(
            f"shufflevector <{lanes} x {kind}> {first}, <{lanes} x {kind}> poison, <{lanes} x i32> <{zeros}>"
        )

    def mask(self, length: str) -> str:
        """The first `length` of the lanes."""
        count = self.least(length, str(LANES))
        if count.startswith("%"):  # compared in 32 bits, which fit a register
            count = self.value(f"trunc i64 {self.greatest(count, '0')} to i32")
        return self.value(f"icmp slt <{LANES} x i32> {_IOTA_32}, {self.splat('i32', LANES, count)}")


_IOTA_32 = "<" + ", ".join(f"i32 {i}" for i in range(LANES)) + ">"
IOTA = "<" + ", ".join(f"i64 {i}" for i in range(LANES)) + ">"


def _known(a: str, b: str) -> bool:
    return not a.startswith("%") and not b.startswith("%")


def shuffle(code: Code, kind: str, lanes: int, a: str, b: str, picks: list[int]) -> str:
    """Lanes `picks` of a (0 .. lanes-1) and b (lanes .. 2*lanes-1)."""
    text = ", ".join(f"i32 {p}" for p in picks)
    return code.value(f"shufflevector <{lanes} x {kind}> {a}, <{lanes} x {kind}> {b}, <{len(picks)} x i32> <{text}>")


def halving_sums(code: Code, vectors: list[str], lanes: int, width: int = 0) -> str:
    """The sum of every `lanes` neighbouring lanes, lane l being added to lane l + lanes/2, then halving: one vector of
    all results, in order.

    `width`: lanes of a vector that holds several sums (default: one sum, `lanes`).
    """
    segment, width = lanes, width or lanes
    while segment > 1:
        half = segment // 2
        starts = range(0, width, segment)
        low = [s + i for s in starts for i in range(half)]
        high = [s + half + i for s in starts for i in range(half)]
        if len(vectors) > 1:
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            both = [[*picks, *(width + p for p in picks)] for picks in (low, high)]
            vectors = [_add_halves(code, width, a, b, *both) for a, b in pairs]
        else:
            vectors = [_add_halves(code, width, vectors[0], "poison", low, high)]
            width //= 2
        segment = half
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        vectors = [shuffle(code, "float", width, a, b, list(range(2 * width))) for a, b in pairs]
        width *= 2
    return vectors[0]


def _add_halves(code: Code, width: int, a: str, b: str, low: list[int], high: list[int]) -> str:
    left, right = shuffle(code, "float", width, a, b, low), shuffle(code, "float", width, a, b, high)
    return code.value(f"fadd <{len(low)} x float> {left}, {right}")
