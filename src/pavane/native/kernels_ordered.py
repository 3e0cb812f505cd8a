"""A product of any types, in any tree, one term at a time: the meaning of `Tree` written down, for what no faster
kernel does.

`dst[r, c] += ...`: with one lane every term is added to dst in ascending j; with more, lane l of an atom adds its
terms j = l (mod lanes) from 0, lanes are added pairwise (l and l + lanes/2, then halving), and the result is added to
dst, atoms in ascending order. q8_0 by q8_0 along K: a term is the integer sum (exact) of 32 / lanes products of a
block, lane after lane, times both scales.
"""

from __future__ import annotations

from pavane.ir.program import Tree
from pavane.ir.types import Q8_BLOCK, Q8_SCALE_BYTES
from pavane.native.elements import load_element, load_scale, q8_block
from pavane.native.outside import outside
from pavane.native.text import Code, Module

PARAMETERS = (
    "ptr %dst, i64 %dst_row, ptr %a, i64 %a_row, i64 %a_col, "
    "ptr %b, i64 %b_row, i64 %b_col, i64 %rows, i64 %cols, i64 %k"
)


def ordered_kernel(module: Module, a: str, b: str, transposed: bool, tree: Tree) -> str:
    """The kernel's name; it is written on its first use."""
    blocks = a == b == "q8_0" and transposed
    if blocks and (tree.lanes > Q8_BLOCK or tree.atom % Q8_BLOCK):
        what = "a q8_0 product adds whole blocks, in at most 32 lanes"
        raise outside(what, "the tree of a product", f"{tree.lanes} lanes, atoms of {tree.atom}")
    name = f"ordered_{a}_{b}_{int(transposed)}_{tree.atom}_{tree.lanes}_{int(tree.fused)}"
    if not module.has(name):
        code = Code(module, name, PARAMETERS, attributes="internal noinline nounwind")
        with code.loop("%rows") as r, code.loop("%cols") as c:
            target = code.at("%dst", code.add(code.mul(r, "%dst_row"), code.mul(c, 4)))
            (_Blocks if blocks else _Ordered)(code, (a, b), transposed, tree, r, c).add_to(target)
        code.finish()
    return name


class _Ordered:
    """One output element, term by term."""

    step = 1

    def __init__(self, code: Code, dtypes: tuple[str, str], transposed: bool, tree: Tree, r: str, c: str) -> None:
        self.code, self.dtypes, self.transposed, self.tree, self.r, self.c = code, dtypes, transposed, tree, r, c

    def add_to(self, target: str) -> None:
        """Add the whole sum to the f32 at `target`."""
        code, lanes = self.code, self.tree.lanes
        if lanes == 1:
            with code.loop("%k", step=self.step) as j:
                self._turn(j, "0", target)
            return
        sums = code.slot(f"[{lanes} x float]")
        with code.loop("%k", step=self.tree.atom or 1 << 40) as start:
            with code.loop(str(lanes)) as lane:
                code.store("float", "0.0", code.at(sums, code.mul(lane, 4)))
            stop = "%k" if not self.tree.atom else code.least("%k", code.add(start, str(self.tree.atom)))
            with code.loop(stop, start=start, step=self.step) as j:
                self._turn(j, start, sums)
            self._halve(sums)
            code.store(
                "float", code.value(f"fadd float {code.load('float', target)}, {code.load('float', sums)}"), target
            )

    def _turn(self, j: str, start: str, sums: str) -> None:
        """Add the term j to its lane."""
        code = self.code
        lane = code.value(f"and i64 {code.sub(j, start)}, {self.tree.lanes - 1}")
        a_row, b_row, a_column, b_column = self._places(j)
        x = load_element(code, self.dtypes[0], a_row, a_column)
        self._multiply_add(x, load_element(code, self.dtypes[1], b_row, b_column), code.at(sums, code.mul(lane, 4)))

    def _places(self, j: str) -> tuple[str, str, str, str]:
        code = self.code
        row, column = (self.c, j) if self.transposed else (j, self.c)
        a_row, b_row = code.at("%a", code.mul(self.r, "%a_row")), code.at("%b", code.mul(row, "%b_row"))
        return a_row, b_row, code.add(j, "%a_col"), code.add(column, "%b_col")

    def _multiply_add(self, x: str, y: str, place: str) -> None:
        code = self.code
        total = code.load("float", place)
        if self.tree.fused:
            result = code.call("llvm.fma.f32", "float", f"float {x}, float {y}, float {total}", "float, float, float")
        else:
            result = code.value(f"fadd float {total}, {code.value(f'fmul float {x}, {y}')}")
        code.store("float", result, place)

    def _halve(self, sums: str) -> None:
        code, half = self.code, self.tree.lanes // 2
        while half:
            with code.loop(str(half)) as lane:
                low = code.at(sums, code.mul(lane, 4))
                high = code.at(low, str(4 * half))
                code.store(
                    "float", code.value(f"fadd float {code.load('float', low)}, {code.load('float', high)}"), low
                )
            half //= 2


class _Blocks(_Ordered):
    """One output element of q8_0 by q8_0: a turn is a block, a term of each lane an integer sum."""

    step = Q8_BLOCK

    def _turn(self, j: str, start: str, sums: str) -> None:
        code, share = self.code, Q8_BLOCK // self.tree.lanes
        a_row, b_row, a_column, b_column = self._places(j)
        blocks = [q8_block(code, row, column) for row, column in ((a_row, a_column), (b_row, b_column))]
        scale = code.value(f"fmul float {load_scale(code, blocks[0])}, {load_scale(code, blocks[1])}")
        with code.loop(str(self.tree.lanes)) as lane:
            total = code.slot("i32")
            code.store("i32", "0", total, 4)
            with code.loop(str(share)) as i:
                place = code.add(code.add(code.mul(lane, share), i), str(Q8_SCALE_BYTES))
                x, y = (code.value(f"sext i8 {code.load('i8', code.at(block, place))} to i32") for block in blocks)
                code.store(
                    "i32",
                    code.value(f"add i32 {code.load('i32', total, 4)}, {code.value(f'mul i32 {x}, {y}')}"),
                    total,
                    4,
                )
            term = code.value(f"sitofp i32 {code.load('i32', total, 4)} to float")
            self._multiply_add(scale, term, code.at(sums, code.mul(lane, 4)))
