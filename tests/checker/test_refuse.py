"""Programs that are wrong in one place are refused, each by the obligation that it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from pavane import reject
from pavane.ir.expr import Reduce, at, fn
from pavane.ir.program import Carry, Fence, Init, Pop, Post, Ref, Run, Tree, Wait
from pavane.ir.quasi import quasi
from pavane.ir.types import Ints
from pavane.targets.load import load_target
from tests.building import COL, GEN_K, ROW, SX, SY, K, X, Y, rect, shape_of, site, span, whole, window
from tests.checker import editing as e
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.examples import attention_host, matmul_multicast, norm_product_host

TOY, HOST = load_target("toy"), load_target("host", 2)
PROGRAMS = {
    "matmul": (matmul_multicast(TOY), TOY),
    "norm": (norm_product_host(HOST), HOST),
    "int8": (norm_product_host(HOST, contract="INT8_ACTIVATIONS"), HOST),
    "attention": (attention_host(HOST), HOST),
    "host": (twice_on_host(HOST), HOST),
    "crossed": (twice_on_host(HOST, crossed=True), HOST),
    "toy": (twice_on_toy(TOY), TOY),
}
LIMIT = (matmul_multicast(TOY, 33, 1 << 16, 31, -16, 16), TOY)
PROGRAMS["limit"] = LIMIT


@dataclass(frozen=True)
class Wrong:
    rule: str
    what: str
    program: str
    edit: e.Edit
    by: type[reject.NotProven]


def _turns(*turns) -> e.Edit:
    return lambda p: replace(p, workers=(replace(p.workers[0], body=turns), *p.workers[1:]))


def _worker_turns(name: str, change) -> e.Edit:
    return lambda p: replace(
        p, workers=tuple(replace(w, body=change(w.body)) if w.name == name else w for w in p.workers)
    )


def _drop(number: int):
    return lambda body: body[:number] + body[number + 1 :]


def _without_counter(name: str) -> e.Edit:
    return lambda p: replace(p, counters=tuple(c for c in p.counters if c.name != name))


def _second(change) -> e.Edit:
    return lambda p: e.in_shape(p, change, 1)


def _early_carry(shape):
    """A carry over the first section's output slots, set before the first slot is in front."""
    early = tuple(replace(p, body=(Init("early"), *p.body)) if p.name == "compute" else p for p in shape.processes)
    slots = (replace(shape.fifos[0], address=16384), replace(shape.fifos[1], address=24576))
    return replace(shape, processes=early, fifos=slots, carries=(Carry("early", 32, 32, "f32", address=8192),))


ROWS, COLS = 64 * Y + 32 * SY, 64 * X + 32 * SX
A_WINDOW = lambda row, col: window((row, 32), (col, 32), row=0)  # noqa: E731
HOST_COL = 32 * SX + 64 * X


def _store_on_matrix(program):
    """Compute and write exchange their engines."""
    other = {"compute": "writer", "write": "matrix"}

    def change(shape):
        return replace(shape, processes=tuple(replace(p, engine=other.get(p.name, p.engine)) for p in shape.processes))

    return e.in_shape(e.in_shape(program, change, 0), change, 1)


WRONG = [
    # coverage
    Wrong(
        "coverage",
        "a column of tiles is skipped",
        "matmul",
        e.with_fields("write", 1, window=A_WINDOW(ROWS, 128 * X + 32 * SX)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "a column of tiles is stored by both sites",
        "matmul",
        e.with_fields("write", 1, window=A_WINDOW(ROWS, 64 * X)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "windows overlap",
        "matmul",
        e.with_fields("write", 1, window=A_WINDOW(ROWS, 32 * X + 32 * SX)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "rows begin one too late",
        "matmul",
        e.with_fields("write", 1, window=A_WINDOW(ROWS + 1, COLS)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "a loop is one turn short",
        "matmul",
        e.every(
            *(e.loop_extent(p, "LV_ITEM_X", quasi(2)) for p in ("leadA", "recvA", "leadB", "recvB", "compute", "write"))
        ),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "the window is one column narrower",
        "matmul",
        e.with_fields("write", 1, window=window((ROWS, 32), (COLS, 31), row=0)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "a region shorter than what is written",
        "matmul",
        e.spec(extents=shape_of(99, 150)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "a region longer than the output",
        "matmul",
        e.spec(extents=shape_of(101, 150)),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage", "an item is stored twice", "matmul", e.at_step("write", 1, lambda s: (s, s)), reject.CoverageRefused
    ),
    Wrong("coverage", "nothing is stored", "matmul", e.without("write", 1), reject.CoverageRefused),
    Wrong(
        "coverage",
        "the store goes to an input",
        "matmul",
        e.with_fields("write", 1, tensor="A"),
        reject.CoverageRefused,
    ),
    Wrong(
        "coverage",
        "heads of both cores are the same",
        "attention",
        e.with_fields("core", 26, window=window((0, 32), (SX, 1), (0, 16), row=0)),
        reject.CoverageRefused,
    ),
    # bounds
    Wrong(
        "bounds",
        "a window begins before the tensor",
        "matmul",
        e.with_fields("leadA", 1, window=A_WINDOW(ROWS - 1, 32 * K)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a window larger than its slot",
        "matmul",
        e.with_fields("leadA", 1, window=window((ROWS, 32), (32 * K, 33), row=0)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a load below the slot's first row",
        "matmul",
        e.with_fields("leadA", 1, row=quasi(1)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a contraction runs over the pad",
        "matmul",
        e.with_op("compute", 3, k=span(32 * K, 32, 96)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "rows beyond the clip are read",
        "matmul",
        e.with_op("compute", 3, rows=whole(32)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "columns beyond the clip are stored",
        "matmul",
        e.with_op("compute", 7, cols=span(COLS, 32, 149)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "an operand one row off",
        "matmul",
        e.with_op("compute", 3, a=Ref("fA", quasi(1))),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a destination beyond the carry",
        "matmul",
        e.with_op("compute", 3, dst=Ref("acc", quasi(1))),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a norm reads one column too far",
        "norm",
        e.with_op(
            "core", 8, expr=Reduce("SUM", GEN_K, quasi(65), fn("mul", at("fX", ROW, GEN_K), at("fX", ROW, GEN_K)))
        ),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a gain read at row 1",
        "norm",
        e.with_op("core", 9, expr=fn("mul", at("fX", ROW, COL), at("fG", 1, COL))),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a ghost head is read without its guard",
        "attention",
        e.with_op("core", 9, guard=()),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a row of scores longer than its carry",
        "attention",
        e.every(e.carry("S", cols=63), e.carry("P", cols=64)),
        reject.BoundsRefused,
    ),
    Wrong(
        "bounds",
        "a q8_0 window inside a block",
        "norm",
        e.with_fields("core", 13, window=window((HOST_COL, 32), (16, 48), row=0)),
        reject.BoundsRefused,
    ),
    Wrong("bounds", "a formal longer than its tensor", "norm", e.tensor("g", shape=shape_of(63)), reject.BoundsRefused),
    Wrong(
        "bounds", "a formal of another type than its tensor", "norm", e.tensor("g", dtype="f16"), reject.BoundsRefused
    ),
    Wrong("bounds", "a slot of another type than the tensor", "norm", e.fifo("fX", dtype="f16"), reject.BoundsRefused),
    # balance
    Wrong("balance", "a pop is missing", "matmul", e.without("compute", 4), reject.BalanceRefused),
    Wrong("balance", "a slot is popped twice", "matmul", e.doubled("compute", 4), reject.BalanceRefused),
    Wrong("balance", "a push without a reserve", "matmul", e.without("compute", 6), reject.BalanceRefused),
    Wrong("balance", "a slot is reserved twice", "matmul", e.doubled("compute", 6), reject.BalanceRefused),
    Wrong(
        "balance",
        "a pop after the loop of its front",
        "norm",
        e.every(e.without("core", 18), e.in_process("core", lambda body: (*body, Pop("fW")))),
        reject.BalanceRefused,
    ),
    Wrong(
        "balance",
        "no wait for a boundary's posts",
        "host",
        _turns(Run(0, "core"), Post("go.core", rect(0, 2, 0, 1)), Run(1, "core")),
        reject.BalanceRefused,
    ),
    Wrong(
        "balance",
        "a boundary waits for too few posts",
        "host",
        _turns(Run(0, "core"), Post("go.core", rect(0, 2, 0, 1)), Wait("go.core", 1), Run(1, "core")),
        reject.BalanceRefused,
    ),
    Wrong(
        "balance",
        "a boundary posts to one site",
        "host",
        _turns(Run(0, "core"), Post("go.core", rect(0, 1, 0, 1)), Wait("go.core", 2), Run(1, "core")),
        reject.BalanceRefused,
    ),
    # capacity
    Wrong(
        "capacity",
        "a buffer passes the end of memory",
        "matmul",
        e.carry("acc", address=65536 - 4096 + 32),
        reject.CapacityRefused,
    ),
    Wrong(
        "capacity",
        "two buffers overlap by one alignment",
        "matmul",
        e.fifo("fB", address=0x1000 - 32),
        reject.CapacityRefused,
    ),
    Wrong("capacity", "a deeper FIFO runs into the next", "matmul", e.fifo("fA", depth=3), reject.CapacityRefused),
    Wrong("capacity", "an unaligned buffer", "matmul", e.carry("acc", address=0x4010), reject.CapacityRefused),
    Wrong("capacity", "a buffer without an address", "matmul", e.carry("acc", address=-1), reject.CapacityRefused),
    Wrong("capacity", "a FIFO without a slot", "matmul", e.fifo("fA", depth=0), reject.CapacityRefused),
    Wrong(
        "capacity",
        "an alias where engines reach local memory only",
        "matmul",
        e.fifo("fC", kind="ALIAS"),
        reject.CapacityRefused,
    ),
    Wrong("capacity", "a counter beyond the chip's", "matmul", e.counter("validA", id=16), reject.CapacityRefused),
    Wrong("capacity", "two counters with one id", "matmul", e.counter("creditB", id=0), reject.CapacityRefused),
    Wrong("capacity", "a counter of other bits", "matmul", e.counter("creditA", bits=3), reject.CapacityRefused),
    Wrong(
        "capacity",
        "an engine that the chip lacks",
        "matmul",
        e.every(e.process("compute", engine="vector")),
        reject.CapacityRefused,
    ),
    Wrong("capacity", "compute on a reader", "matmul", e.process("compute", engine="writer"), reject.CapacityRefused),
    Wrong(
        "capacity",
        "a process outside the grid",
        "matmul",
        e.process("compute", rect=rect(0, 3, 0, 2)),
        reject.CapacityRefused,
    ),
    Wrong("capacity", "SCRATCH without a place", "host", e.tensor("t", offset=-1), reject.CapacityRefused),
    # progress
    Wrong("progress", "the result is taken before it is made", "norm", e.swapped("core", 21), reject.ProgressRefused),
    Wrong(
        "progress", "a member waits before it gives its credit", "matmul", e.swapped("recvA", 1), reject.ProgressRefused
    ),
    Wrong(
        "progress",
        "a leader says valid before it has the credit",
        "host",
        _turns(Run(0, "core"), Wait("go.core", 2), Post("go.core", rect(0, 2, 0, 1)), Run(1, "core")),
        reject.ProgressRefused,
    ),
    # order
    Wrong("order", "a push before the fence", "matmul", e.without("leadA", 2), reject.OrderRefused),
    Wrong("order", "a pop before the store has ended", "matmul", e.without("write", 2), reject.OrderRefused),
    Wrong("order", "valid before the send has ended", "matmul", e.without("leadA", 5), reject.OrderRefused),
    Wrong(
        "order",
        "two sections without a boundary",
        "crossed",
        _turns(Run(0, "core"), Run(1, "core")),
        reject.OrderRefused,
    ),
    Wrong(
        "order",
        "sections in the wrong order",
        "host",
        _turns(Run(1, "core"), Post("go.core", rect(0, 2, 0, 1)), Wait("go.core", 2), Run(0, "core")),
        reject.OrderRefused,
    ),
    Wrong(
        "order",
        "a section runs twice",
        "host",
        _turns(Run(0, "core"), Run(0, "core"), Post("go.core", rect(0, 2, 0, 1)), Wait("go.core", 2), Run(1, "core")),
        reject.OrderRefused,
    ),
    Wrong(
        "order",
        "a section does not run",
        "host",
        _turns(Run(0, "core"), Post("go.core", rect(0, 2, 0, 1)), Wait("go.core", 2)),
        reject.OrderRefused,
    ),
    Wrong("order", "an input is written", "host", e.tensor("t", role="INPUT", offset=-1), reject.OrderRefused),
    Wrong(
        "order",
        "the reader does not wait",
        "toy",
        e.every(
            _worker_turns("reader_a", _drop(1)), _worker_turns("writer", _drop(3)), _without_counter("start.reader_a")
        ),
        reject.OrderRefused,
    ),
    Wrong(
        "order",
        "compute does not wait and sets a carry that lies over a slot being stored",
        "toy",
        e.every(
            _worker_turns("matrix", _drop(1)),
            _worker_turns("writer", _drop(4)),
            _without_counter("start.matrix"),
            _second(_early_carry),
        ),
        reject.OrderRefused,
    ),
    # multicast
    Wrong(
        "multicast",
        "no credit is awaited",
        "matmul",
        e.every(e.without("leadA", 3), e.without("recvA", 1)),
        reject.BalanceRefused,
    ),
    Wrong("multicast", "a credit ahead", "matmul", e.counter("creditA", ahead=1), reject.MulticastRefused),
    Wrong(
        "multicast",
        "the send goes to the wrong row",
        "matmul",
        e.with_fields("leadA", 4, to=site(1, 1 - SY)),
        reject.MulticastRefused,
    ),
    Wrong(
        "multicast",
        "the send misses the member",
        "matmul",
        e.with_fields("leadA", 4, to=site(0, SY)),
        reject.MulticastRefused,
    ),
    Wrong("multicast", "the send before the credit", "matmul", e.swapped("leadA", 3), reject.MulticastRefused),
    Wrong(
        "multicast",
        "credits go to the other row's leader",
        "matmul",
        e.with_fields("recvA", 1, to=site(0, 1 - SY)),
        reject.MulticastRefused,
    ),
    Wrong(
        "multicast",
        "a member fills the slot itself",
        "matmul",
        e.at_step(
            "recvA",
            0,
            lambda s: (s, PROGRAMS["matmul"][0].shapes[0].processes[0].body[0].body[0].body[0].body[1], Fence()),
        ),
        reject.MulticastRefused,
    ),
    Wrong("multicast", "a local FIFO is sent", "matmul", e.fifo("fA", kind="LOCAL"), reject.MulticastRefused),
    Wrong("multicast", "nothing is sent", "matmul", e.without("leadA", 4), reject.MulticastRefused),
    # replay
    Wrong("replay", "a slot is kept at the end", "norm", e.without("core", 10), reject.ReplayRefused),
    # numerics
    Wrong(
        "numerics",
        "the tree has another number of lanes",
        "norm",
        e.with_op("core", 17, tree=Tree(0, 8, True)),
        reject.NumericsRefused,
    ),
    Wrong("numerics", "half a block of q8_0", "norm", e.with_op("core", 17, k=whole(48)), reject.NumericsRefused),
    Wrong("capacity", "a store on the matrix engine", "toy", _store_on_matrix, reject.CapacityRefused),
    Wrong(
        "numerics",
        "multiply and add round twice",
        "norm",
        e.with_op("core", 17, tree=Tree(0, 16, False)),
        reject.NumericsRefused,
    ),
    Wrong("numerics", "a tree of atoms", "matmul", e.with_op("compute", 3, tree=Tree(32, 2)), reject.NumericsRefused),
    Wrong(
        "numerics",
        "one integer past the limit",
        "limit",
        e.every(e.formal("A", fill=Ints(-17, 16)), e.tensor("a", fill=Ints(-17, 16))),
        reject.NumericsRefused,
    ),
    Wrong("numerics", "exactness of floats", "norm", e.numerics(exact=True), reject.NumericsRefused),
    Wrong(
        "numerics",
        "quantised activations under the float contract",
        "int8",
        e.numerics(contract="FLOAT"),
        reject.NumericsRefused,
    ),
    Wrong(
        "numerics",
        "float activations under the int8 contract",
        "norm",
        e.numerics(contract="INT8_ACTIVATIONS"),
        reject.NumericsRefused,
    ),
    Wrong(
        "numerics",
        "a wrong operand type stated",
        "matmul",
        e.numerics(operands=(("A", "f32"), ("B", "bf16"))),
        reject.NumericsRefused,
    ),
    Wrong(
        "numerics",
        "an operand stated twice",
        "matmul",
        e.numerics(operands=(("A", "f32"), ("A", "bf16"), ("B", "bf16"))),
        reject.NumericsRefused,
    ),
    Wrong(
        "numerics",
        "a fill that the tensor does not promise",
        "matmul",
        e.tensor("a", fill=Ints(-5, 4)),
        reject.NumericsRefused,
    ),
    Wrong("numerics", "a sum in a narrow carry", "matmul", e.carry("acc", dtype="bf16"), reject.NumericsRefused),
    Wrong(
        "numerics",
        "the accumulator is not what is stated",
        "matmul",
        e.numerics(accumulator="bf16"),
        reject.NumericsRefused,
    ),
    # meaning
    Wrong(
        "meaning",
        "a K block twice",
        "matmul",
        e.with_fields("leadA", 1, window=A_WINDOW(ROWS, 0)),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "K one off in one operand",
        "matmul",
        e.with_fields("leadB", 1, window=A_WINDOW(32 * K + 1, COLS)),
        reject.BoundsRefused,
    ),
    Wrong(
        "meaning",
        "rows of the neighbour site",
        "matmul",
        e.with_fields("leadA", 1, window=A_WINDOW(64 * Y, 32 * K)),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "columns one off",
        "matmul",
        e.with_fields("leadB", 1, window=A_WINDOW(32 * K, COLS + 1)),
        reject.BoundsRefused,
    ),
    Wrong("meaning", "the sum starts at one", "matmul", e.carry("acc", initial=1.0), reject.MeaningRefused),
    Wrong("meaning", "the sum is never reset", "matmul", e.without("compute", 0), reject.OutsideFragment),
    Wrong(
        "meaning",
        "one K block too few",
        "matmul",
        e.every(*(e.loop_extent(p, "LV_KBLOCK", quasi(2)) for p in ("leadA", "recvA", "leadB", "recvB", "compute"))),
        reject.MeaningRefused,
    ),
    Wrong("meaning", "a product is added twice", "matmul", e.doubled("compute", 3), reject.MeaningRefused),
    Wrong("meaning", "a slot is handed over unfilled", "norm", e.without("core", 20), reject.MulticastRefused),
    Wrong(
        "meaning",
        "the divisor of a mean",
        "norm",
        e.with_op(
            "core",
            9,
            expr=fn(
                "mul",
                fn("mul", at("fX", ROW, COL), fn("rsqrt", fn("add", fn("div", at("ss", ROW, 0), 63.0), 1e-5))),
                at("fG", 0, COL),
            ),
        ),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "no mask",
        "attention",
        e.with_op("core", 13, expr=fn("exp", at("S", ROW, COL))),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "the other head's keys",
        "attention",
        e.with_fields("core", 6, window=window((32 * K, 32), (0, 1), (0, 16), row=0)),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "the scores are reset in every block",
        "attention",
        e.every(e.without("core", 4), e.at_step("core", 4, lambda s: (s, Init("S")))),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "factor three",
        "host",
        e.with_op("core", 5, expr=fn("mul", at("fI", ROW, COL), 3.0)),
        reject.MeaningRefused,
    ),
    Wrong(
        "meaning",
        "rows and columns exchanged",
        "host",
        e.spec(expr=fn("mul", at("I", "i0", 0), 2.0)),
        reject.MeaningRefused,
    ),
]
IDS = [f"{wrong.rule}: {wrong.what} ({wrong.program})" for wrong in WRONG]


@pytest.mark.parametrize("wrong", WRONG, ids=IDS)
def test_is_refused(wrong):
    program, target = PROGRAMS[wrong.program]
    refused = e.refusal(program, target, wrong.edit)
    assert refused is not None, "accepted"
    assert isinstance(refused, wrong.by), f"{type(refused).__name__}: {refused}"
    assert refused.where


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_program_itself_is_accepted(name):
    e.accepted(*PROGRAMS[name])


def test_there_are_enough():
    assert len(WRONG) >= 60
    assert len(set(IDS)) == len(IDS)
