"""Products of operands in blocks: an engine multiplies whole blocks, so a sum over a part of one is refused, wherever
the span of its terms is clipped.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pavane.ir.program import Compute, MatmulTiles, Node, Program, Shape, Span
from pavane.ir.quasi import quasi
from pavane.ir.walk import rebuild
from pavane.reject import NumericsRefused
from pavane.targets.load import load_target
from tests.building import span
from tests.checker import editing as e
from tests.checker.editing import accepted
from tests.examples import norm_product_host
from tests.oracle.judge import judge

HOST = load_target("host", 2)
CONTRACTS = ("FLOAT", "INT8_ACTIVATIONS")


def product(terms: int, of: Span, contract: str) -> Program:
    """y[r, n] = the sum over the first `terms` of 64 elements of rmsnorm(x)[r] and of W[n], in blocks of 32."""

    def narrow(node: Node) -> tuple[Node, ...]:
        is_product = isinstance(node, Compute) and isinstance(node.op, MatmulTiles)
        return (Compute(replace(node.op, k=of)),) if is_product else (node,)

    def change(shape: Shape) -> Shape:
        (spec,), (process,) = shape.spec, shape.processes
        spec = replace(spec, expr=replace(spec.expr, extent=quasi(terms)))
        return replace(shape, spec=(spec,), processes=(replace(process, body=rebuild(process.body, narrow)),))

    return e.in_shape(norm_product_host(HOST, width=64, outputs=40, contract=contract), change)


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize(
    ("terms", "of"),
    [(64, span(0, 64, 64)), (32, span(0, 64, 32)), (32, span(0, 32, 64)), (32, span(0, 32, 40)), (32, span(7, 64, 39))],
)
def test_sums_over_whole_blocks_are_accepted_and_safe(terms, of, contract):
    made = product(terms, of, contract)
    accepted(made, HOST)
    assert judge(made, HOST).safe


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize(
    ("terms", "of"),
    [(40, span(0, 64, 40)), (63, span(0, 64, 63)), (1, span(0, 32, 1)), (40, span(0, 40, 64)), (57, span(7, 64, 64))],
)
def test_sums_over_a_part_of_a_block_are_refused(terms, of, contract):
    with pytest.raises(NumericsRefused, match="not read in whole blocks of 32"):
        accepted(product(terms, of, contract), HOST)


@pytest.mark.parametrize(("terms", "of"), [(40, span(0, 64, 40)), (40, span(0, 40, 64))])
def test_they_are_misuse(terms, of):
    assert "cut a block" in judge(product(terms, of, "INT8_ACTIVATIONS"), HOST).fault
