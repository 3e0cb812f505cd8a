"""`from_q8`: a product over a weight that the deployment stores q8_0 -> its TEMPLATE section.

y = prologue(x) . W^T with W [N, K]: scales and quants move as they are stored and are widened on the chip. Rows of x,
or of the panel that the prologue makes, are whole in a slot; under INT8_ACTIVATIONS the panel is q8_0 too.

Refuses: `ArgumentReject` when there are more rows than a tile's, K is not a multiple of 32, W is not q8_0 [N, K];
`NoEngine`.
"""

from __future__ import annotations

from pavane.ir.program import Program
from pavane.ir.quasi import quasi, upper
from pavane.ir.types import Q8_BLOCK
from pavane.passes.linking import link_of, operand_over
from pavane.passes.product import ProductOp as Section
from pavane.passes.product import block_grid, output_block, product_section, weight_rows
from pavane.passes.template import extents, fixed_axis, symbols_domain
from pavane.reject import ArgumentReject
from pavane.targets.descriptor import SpatialTarget
from pavane.tensor_graph.recognised import ProductOp


def from_q8(op: ProductOp, target: SpatialTarget) -> Program:
    """The TEMPLATE of one product with a q8_0 weight."""
    _check(op, target)
    return whole_row_product(op, target)


def whole_row_product(op: ProductOp, target: SpatialTarget) -> Program:
    """A transposed product whose rows of `a` and of the weight are whole in their slots."""
    grid = block_grid(op.rows, op.cols, target, op.symbols)
    over_k = fixed_axis(op.k, op.k)
    first = operand_over(op.a, grid.rows, over_k)
    section = Section(
        name="product",
        section=op.name,
        k=op.k,
        grid=grid,
        input=first,
        weight=weight_rows(op.b.formal, op.b.tensor, grid, op.k),
        output=output_block("C", op.output, grid, op.rows),
        spec_origin=extents(0, 0),
        contract=op.contract,
        prologue=tuple(link_of(link) for link in op.prologue),
        prologue_operands=tuple(operand_over(given, grid.rows, over_k) for given in op.prologue_inputs),
        epilogue=tuple(link_of(link) for link in op.epilogue),
        item_operands=tuple(operand_over(given, grid.rows, grid.cols) for given in op.epilogue_inputs),
    )
    return product_section(section, target, op.symbols)


def _check(op: ProductOp, target: SpatialTarget) -> None:
    most = upper(quasi(op.rows), symbols_domain(op.symbols))
    faults = []
    if op.b.tensor.dtype != "q8_0" or not op.transposed:
        faults.append(
            f"the weight is {op.b.tensor.dtype}, {'[N, K]' if op.transposed else '[K, N]'}; needed q8_0 [N, K]"
        )
    if op.k % Q8_BLOCK:
        faults.append(f"K = {op.k} is not a multiple of {Q8_BLOCK}")
    if most > target.tile[0]:
        faults.append(f"{most} rows, and a tile of {target.name} has {target.tile[0]}")
    if faults:
        raise ArgumentReject(
            "this product over a q8_0 weight has no section",
            where=op.name,
            terms=faults,
            remedy="give blocks of at most a tile's rows, and q8_0 weights stored [N, K] with K a multiple of 32",
        )
