"""A product of any types, in any tree, one term at a time: the meaning of `Tree` written down, for what no faster kernel does.

`dst[r, c] += ...`: with one lane every term is added to dst in ascending j; with more, lane l of an atom adds its terms j = l (mod lanes)
from 0, lanes are added pairwise (l and l + lanes/2, then halving), and the result is added to dst, atoms in ascending order.
"""

from __future__ import annotations

from pavane.ir.program import Tree
from pavane.native.elements import load_element
from pavane.native.text import Code, Module

PARAMETERS = (
    "ptr noalias %dst, i64 %dst_row, ptr %a, i64 %a_row, i64 %a_col, ptr %b, i64 %b_row, i64 %b_col, i64 %rows, i64 %cols, i64 %k"
)


def ordered_kernel(module: Module, a: str, b: str, transposed: bool, tree: Tree) -> str:
    """The kernel's name; it is written on its first use."""
    name = f"ordered_{a}_{b}_{int(transposed)}_{tree.atom}_{tree.lanes}_{int(tree.fused)}"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        with code.loop("%rows") as r, code.loop("%cols") as c:
            target = code.at("%dst", code.add(code.mul(r, "%dst_row"), code.mul(c, 4)))
            _Ordered(code, (a, b), transposed, tree, r, c).add_to(target)
        code.finish()
    return name


class _Ordered:
    """One output element."""

    def __init__(self, code: Code, dtypes: tuple[str, str], transposed: bool, tree: Tree, r: str, c: str) -> None:
        self.code, self.dtypes, self.transposed, self.tree, self.r, self.c = code, dtypes, transposed, tree, r, c

    def add_to(self, target: str) -> None:
        code, lanes = self.code, self.tree.lanes
        if lanes == 1:
            with code.loop("%k") as j:
                self._accumulate(j, target)
            return
        sums = code.slot(f"[{lanes} x float]")
        with code.loop("%k", step=self.tree.atom or 1 << 40) as start:
            with code.loop(str(lanes)) as lane:
                code.store("float", "0.0", code.at(sums, code.mul(lane, 4)))
            stop = "%k" if not self.tree.atom else code.least("%k", code.add(start, str(self.tree.atom)))
            with code.loop(stop, start=start) as j:
                lane = code.value(f"and i64 {code.sub(j, start)}, {lanes - 1}")
                self._accumulate(j, code.at(sums, code.mul(lane, 4)))
            self._halve(sums)
            code.store("float", code.value(f"fadd float {code.load('float', target)}, {code.load('float', sums)}"), target)

    def _halve(self, sums: str) -> None:
        code, half = self.code, self.tree.lanes // 2
        while half:
            with code.loop(str(half)) as lane:
                low = code.at(sums, code.mul(lane, 4))
                high = code.at(low, str(4 * half))
                code.store("float", code.value(f"fadd float {code.load('float', low)}, {code.load('float', high)}"), low)
            half //= 2

    def _accumulate(self, j: str, place: str) -> None:
        code = self.code
        a_row = code.at("%a", code.mul(self.r, "%a_row"))
        b_row, b_column = (self.c, j) if self.transposed else (j, self.c)
        x = load_element(code, self.dtypes[0], a_row, code.add(j, "%a_col"))
        y = load_element(code, self.dtypes[1], code.at("%b", code.mul(b_row, "%b_row")), code.add(b_column, "%b_col"))
        total = code.load("float", place)
        if self.tree.fused:
            result = code.call("llvm.fma.f32", "float", f"float {x}, float {y}, float {total}", "float, float, float")
        else:
            result = code.value(f"fadd float {total}, {code.value(f'fmul float {x}, {y}')}")
        code.store("float", result, place)
