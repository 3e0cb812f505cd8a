"""How indices, expressions, windows and steps are written for people.

`y x k X Y r c j` abbreviate LV_ITEM_Y, LV_ITEM_X, LV_KBLOCK, SITE_X, SITE_Y, LV_GEN_ROW, LV_GEN_COL, LV_GEN_K (unless
a symbol has that name). `A[32*y+:32|100]` is the window that starts at 32*y, is 32 long and clipped at 100. `<0..1,
Y>` is a set of sites. `+=` is MatmulTiles, `=` a Generic; `if h<3` is a guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import singledispatchmethod

from pavane.ir.expr import At, Const, Expr, Fn, Index, Indirect, Reduce, Var
from pavane.ir.program import (
    Compute,
    Fence,
    Front,
    Generic,
    Init,
    Load,
    Loop,
    Node,
    Pop,
    Post,
    Push,
    Rect,
    Ref,
    Reserve,
    Send,
    Span,
    Step,
    Store,
    Tree,
    Wait,
    Window,
)
from pavane.ir.quasi import Quasi, quasi

ABBREVIATIONS = {
    "LV_ITEM_Y": "y", "LV_ITEM_X": "x", "LV_ITEM": "i", "LV_KBLOCK": "k", "LV_SUB_H": "h", "LV_SUB_W": "w",
    "SITE_X": "X", "SITE_Y": "Y", "LV_GEN_ROW": "r", "LV_GEN_COL": "c", "LV_GEN_K": "j",
}  # fmt: skip
LINE_CHARACTERS = 140
_INFIX = {
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
    "eq": ("==", 3),
    "lt": ("<", 3),
    "le": ("<=", 3),
}
_LOOSE, _TIGHT = 0, 9


class Words:
    """The writer for one section: which names are abbreviated, and the extents at which windows are clipped."""

    def __init__(self, symbols: tuple[str, ...] = (), extents: Mapping[str, tuple[Quasi, ...]] | None = None) -> None:
        self.names = {long: short for long, short in ABBREVIATIONS.items() if short not in symbols}
        self.extents = extents or {}

    def index(self, value: Index) -> str:
        """`64*y+32*Y`, or `ids[h] via fids in 0..9`."""
        if isinstance(value, Indirect):
            inner = ",".join(self.index(q) for q in value.index)
            return (
                f"{value.tensor}[{inner}]"
                + (f" via {value.via}" if value.via else "")
                + f" in {value.lo}..{value.hi - 1}"
            )
        parts = []
        for coefficient, atom in value.terms:
            name = (
                self.names.get(atom, atom)
                if isinstance(atom, str)
                else f"floor({self.index(atom.numerator)}, {atom.divisor})"
            )
            parts.append(
                ("-" if coefficient < 0 else "+") + ("" if abs(coefficient) == 1 else f"{abs(coefficient)}*") + name
            )
        if value.const or not parts:
            parts.append(f"{value.const:+d}")
        return "".join(parts).removeprefix("+")

    def extents_text(self, values: tuple[Quasi, ...]) -> str:
        return ",".join(self.index(value) for value in values)

    def span(self, span: Span) -> str:
        """`32*y+:32|100`."""
        return f"{self.index(span.start)}+:{span.size}|{self.index(span.limit)}"

    def window(self, tensor: str, window: Window) -> str:
        """`A[32*y+:32|100, 0+:64|64]`; the dimension that gives the rows is named where it is not the obvious one."""
        extents = self.extents.get(tensor, ())
        dims = []
        for dimension, (start, size) in enumerate(zip(window.start, window.size, strict=False)):
            clip = f"|{self.index(extents[dimension])}" if dimension < len(extents) else ""
            dims.append(f"{self.index(start)}+:{size}{clip}")
        obvious = next((d for d, size in enumerate(window.size[:-1]) if size > 1), -1)
        rows = (
            "" if window.row == obvious else f" rows from dimension {window.row}" if window.row >= 0 else " as one row"
        )
        return f"{tensor}[{', '.join(dims)}]{rows}"

    def sites(self, rect: Rect | None) -> str:
        """`<0..1, Y>`."""
        if rect is None:
            return "<anywhere>"
        return f"<{self._range(rect.x0, rect.x1)}, {self._range(rect.y0, rect.y1)}>"

    def _range(self, first: Quasi, end: Quasi) -> str:
        last = end - 1
        return self.index(first) if first == last else f"{self.index(first)}..{self.index(last)}"

    def ref(self, ref: Ref) -> str:
        """`S[0,32*k]`, or the name alone at the origin."""
        at_origin = ref.row == ref.col == Quasi()
        return ref.name if at_origin else f"{ref.name}[{self.index(ref.row)},{self.index(ref.col)}]"

    def expr(self, expr: Expr, tightness: int = _LOOSE) -> str:
        """Infix, with the parentheses that are needed."""
        if isinstance(expr, Const):
            return f"{expr.value:g}" if float(f"{expr.value:g}") == expr.value else repr(expr.value)
        if isinstance(expr, Var):
            text = self.index(expr.value)
            return text if len(expr.value.terms) + bool(expr.value.const) <= 1 else f"({text})"
        if isinstance(expr, At):
            return f"{expr.name}{chr(39) if expr.next else ''}[{','.join(self.index(i) for i in expr.index)}]"
        if isinstance(expr, Reduce):
            text = (
                f"{expr.kind}({self.names.get(expr.var, expr.var)}<{self.index(expr.extent)}) {self.expr(expr.body, 5)}"
            )
            return f"({text})" if tightness > _LOOSE else text
        return self._operator(expr, tightness)

    def _operator(self, expr: Fn, tightness: int) -> str:
        if expr.op not in _INFIX:
            name = f"cast_{expr.dtype}" if expr.op == "cast" else expr.op
            return f"{name}({', '.join(self.expr(a) for a in expr.args)})"
        sign, own = _INFIX[expr.op]
        text = f"{self.expr(expr.args[0], own)} {sign} {self.expr(expr.args[1], own + 1)}"
        return f"({text})" if own < tightness else text

    def body(self, nodes: tuple[Node, ...]) -> Iterator[str]:
        """Lines of a loop tree: loops that hold only one another stand on one line, steps are joined by `; `."""
        steps: list[str] = []
        for node in nodes:
            if isinstance(node, Loop):
                yield from _wrapped(steps)
                steps = []
                yield from self._loop(node)
            else:
                steps.append(self.step(node))
        yield from _wrapped(steps)

    def _loop(self, loop: Loop) -> Iterator[str]:
        heads = [self._head(loop)]
        while len(loop.body) == 1 and isinstance(loop.body[0], Loop):
            loop = loop.body[0]
            heads.append(self._head(loop))
        yield " ".join(heads) + ":"
        yield from ("  " + line for line in self.body(loop.body))

    def _head(self, loop: Loop) -> str:
        return f"for {self.names.get(loop.var, loop.var)}<{self.index(loop.extent)}"

    @singledispatchmethod
    def step(self, step: Step) -> str:
        """One step, as a short sentence."""
        raise TypeError(f"no step: {step!r}")

    @step.register
    def _(self, step: Load) -> str:
        row = "" if step.row == Quasi() else f"[{self.index(step.row)}]"
        return f"load {step.fifo}{row} <- {self.window(step.tensor, step.window)}"

    @step.register
    def _(self, step: Store) -> str:
        return f"store {step.fifo} -> {self.window(step.tensor, step.window)}"

    @step.register
    def _(self, step: Send) -> str:
        return f"send {step.fifo} -> {self.sites(step.to)}"

    @step.register
    def _(self, step: Post) -> str:
        return f"post {step.counter}{'' if step.n == 1 else f' {step.n}'} -> {self.sites(step.to)}"

    @step.register
    def _(self, step: Wait) -> str:
        return f"wait {step.counter} {step.n}"

    @step.register
    def _(self, step: Fence) -> str:
        return "fence"

    @step.register
    def _(self, step: Init) -> str:
        return f"init {step.carry}"

    @step.register(Reserve)
    @step.register(Push)
    @step.register(Front)
    @step.register(Pop)
    def _(self, step: Reserve | Push | Front | Pop) -> str:
        return f"{type(step).__name__.lower()} {step.fifo}"

    @step.register
    def _(self, step: Compute) -> str:
        op = step.op
        guard = f" if {' and '.join(self._guard(g) for g in op.guard)}" if op.guard else ""
        if isinstance(op, Generic):
            row, col = op.dst.row + quasi("LV_GEN_ROW"), op.dst.col + quasi("LV_GEN_COL")
            target = f"{op.dst.name}[{self.index(row)},{self.index(col)}]"
            return f"{target} = {self.expr(op.expr)} over {self.span(op.rows)} x {self.span(op.cols)}{guard}"
        turned = "^T" if op.transposed else ""
        product = f"{self.ref(op.dst)} += {self.ref(op.a)} . {self.ref(op.b)}{turned}"
        spans = f"{self.span(op.rows)} x {self.span(op.cols)} x {self.span(op.k)}"
        return f"{product} over {spans}{_tree(op.tree)}{guard}"

    def _guard(self, guard: Span) -> str:
        text = f"{self.index(guard.start)}<{self.index(guard.limit)}"
        return text if guard.size == 1 else f"{text} ({guard.size})"


def _tree(tree: Tree) -> str:
    """Nothing for the plain ascending sum."""
    if tree == Tree():
        return ""
    lanes = f"{tree.lanes} lane{'s' if tree.lanes > 1 else ''}"
    return f" ({lanes}{f', atoms of {tree.atom}' if tree.atom else ''}{', fused' if tree.fused else ''})"


def _wrapped(steps: list[str]) -> Iterator[str]:
    """Steps joined by `; `, in lines of moderate length, broken between steps only."""
    line = ""
    for step in steps:
        if line and len(line) + len(step) + 2 > LINE_CHARACTERS:
            yield line + ";"
            line = step
        else:
            line = f"{line}; {step}" if line else step
    if line:
        yield line
