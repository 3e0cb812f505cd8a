"""Broken programs are caught, and the message names who, where and what; bad launches are refused before anything
moves."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import (
    Carry,
    Compute,
    Counter,
    Fence,
    Front,
    Init,
    Load,
    Pop,
    Post,
    Push,
    Reserve,
    Send,
    Store,
    Wait,
)
from pavane.ir.quasi import quasi
from pavane.reject import ArgumentReject, LaunchReject, MemoryExceeded
from pavane.sim import Deadlock, PoisonRead, ProtocolFault, SimulationFault, Simulator, UnwrittenOutput, simulate
from tests.building import span
from tests.engines.sim_programs import edited, gather, growing_cache, local_matmul, product_chain, without
from tests.examples import matmul_multicast

BF16 = ml_dtypes.bfloat16


def ones(m: int = 40, k: int = 70, n: int = 50, dtype: type = BF16) -> dict[str, np.ndarray]:
    return {"a": np.ones((m, k), dtype), "b": np.ones((k, n), dtype)}


def run_multicast(toy, process, change, timing=True):
    return simulate(edited(matmul_multicast(toy, 40, 70, 50), process, change), toy, tensors=ones(), timing=timing)


@pytest.mark.parametrize("timing", [True, False])
def test_a_dropped_post_is_a_deadlock_with_names(toy, timing):
    with pytest.raises(Deadlock) as caught:
        run_multicast(toy, "leadA", without(Post), timing)
    text = str(caught.value)
    assert "process recvA on reader_a of site (1, 0), step 2 `wait validA`" in text
    assert "waits for 1 further post of counter validA (value 0, register 0, 4 bits)" in text
    assert "process compute on matrix of site (1, 1), step 1 `front fA`" in text
    assert "after cycle" in text
    assert "recvA on reader_a of site (0," not in text


def test_more_slots_than_owners(toy):
    """What wrote a byte is known by a number of 16 bits; without data nobody asks."""
    program = matmul_multicast(toy, 40, 70, 50)
    shape = program.shapes[0]
    deep = tuple(replace(f, rows=1, cols=1, depth=1 << 15, address=0) for f in shape.fifos)
    program = replace(program, shapes=(replace(shape, fifos=deep),))
    with pytest.raises(ArgumentReject, match="more buffers than"):
        simulate(program, toy, tensors=ones())
    assert simulate(program, toy, functional=False).cycles > 0


def test_the_same_without_data(toy):
    broken = edited(matmul_multicast(toy, 40, 70, 50), "leadA", without(Post))
    with pytest.raises(Deadlock, match="wait validA"):
        simulate(broken, toy, functional=False)


def test_a_full_fifo_that_nobody_takes_from(toy):
    broken = edited(matmul_multicast(toy, 200, 3, 150), "write", without(Front, Store, Fence, Pop))
    with pytest.raises(Deadlock, match=r"`reserve fC`, section matmul: waits for a free slot, 2 of 2 are pushed"):
        simulate(broken, toy, tensors=ones(200, 3, 150))


def test_slots_that_nobody_takes(toy):
    broken = edited(local_matmul(toy, 8, 40, 40), "write", without(Front, Store, Fence, Pop))
    with pytest.raises(ProtocolFault, match=r"slots that nobody took.*local_product.fC of site \(0, 0\)"):
        simulate(broken, toy, tensors=ones(8, 40, 40, np.float32))


@pytest.mark.parametrize("timing", [True, False])
def test_a_missing_fence_is_read_as_poison(toy, timing):
    broken = edited(local_matmul(toy, 8, 40, 40), "readB", without(Fence))
    with pytest.raises(PoisonRead) as caught:
        simulate(broken, toy, tensors=ones(8, 40, 40, np.float32), timing=timing)
    assert "fB: reads elements that nothing has written" in str(caught.value)
    assert "process compute on matrix" in str(caught.value)
    assert "MatmulTiles -> acc" in str(caught.value)


def test_a_missing_initialisation(toy):
    with pytest.raises(PoisonRead, match="acc: reads elements"):
        run_multicast(toy, "compute", without(Init))


def test_padding_is_not_read(toy):
    """A product that takes whole tiles meets the part of the slot that the clipped load left alone."""

    def unclipped(node):
        if isinstance(node, Compute) and hasattr(node.op, "k"):
            return (Compute(replace(node.op, k=span(0, 32, 32))),)
        return (node,)

    with pytest.raises(PoisonRead, match=r"f[AB]: reads elements"):
        run_multicast(toy, "compute", unclipped)


@pytest.mark.parametrize("timing", [True, False])
def test_a_send_needs_a_reserved_slot(toy, timing):
    with pytest.raises(ProtocolFault, match=r"nobody has reserved.*process leadA on reader_a of site \(0, [01]\)"):
        run_multicast(toy, "recvA", without(Reserve, Push), timing)


def test_a_missing_send_leaves_poison(toy):
    with pytest.raises(PoisonRead, match="process compute on matrix of site"):
        run_multicast(toy, "leadA", without(Send))


@pytest.mark.parametrize(("process", "kind"), [("compute", Front), ("write", Front), ("readA", Push)])
def test_steps_without_their_partner(toy, process, kind):
    broken = edited(local_matmul(toy, 8, 70, 40), process, without(kind))
    with pytest.raises(ProtocolFault, match=r"no meaning here|has no slot of"):
        simulate(broken, toy, tensors=ones(8, 70, 40, np.float32))


def test_a_dropped_store_leaves_the_output_unwritten(toy):
    with pytest.raises(UnwrittenOutput, match=r"320 elements of output 'c'.*\(0, 0\)"):
        simulate(
            edited(local_matmul(toy, 8, 40, 40), "write", without(Store)), toy, tensors=ones(8, 40, 40, np.float32)
        )


def test_transfers_end_before_their_process(toy):
    with pytest.raises(ProtocolFault, match=r"process write on writer of site .0, 0. ended with 1"):
        simulate(
            edited(local_matmul(toy, 8, 40, 40), "write", without(Fence)), toy, tensors=ones(8, 40, 40, np.float32)
        )


def test_two_buffers_at_one_address(toy):
    """The accumulator over the slots of fB: whoever writes last leaves the other's bytes foreign."""
    program = local_matmul(toy, 8, 70, 40)
    shape = program.shapes[0]
    overlapping = replace(shape, carries=(Carry("acc", 32, 32, "f32", address=0x2000),))
    with pytest.raises(PoisonRead, match="nothing has written"):
        simulate(replace(program, shapes=(overlapping,)), toy, tensors=ones(8, 70, 40, np.float32))


def test_a_buffer_outside_the_memory(toy):
    program = local_matmul(toy, 8, 70, 40)
    shape = replace(program.shapes[0], carries=(Carry("acc", 32, 32, "f32", address=65536 - 64),))
    with pytest.raises(MemoryExceeded, match=r"'acc'.*65472 to 69568"):
        simulate(replace(program, shapes=(shape,)), toy, tensors=ones(8, 70, 40, np.float32))


def test_sections_without_their_boundary_read_too_early(toy):
    """The second section's reader does not wait for the first one's writers."""
    program = product_chain(toy, 64, 2)
    workers = tuple(replace(w, body=tuple(t for t in w.body if not isinstance(t, Wait))) for w in program.workers)
    weights = {f"w{i}": np.eye(64, dtype=np.float32) for i in range(2)}
    with pytest.raises(PoisonRead, match="section product1"):
        simulate(replace(program, workers=workers), toy, tensors={"x": np.ones((5, 64), np.float32), **weights})


def test_a_read_before_the_append(toy):
    broken = edited(growing_cache(toy), "read", without(Wait))
    resident = Simulator(broken, toy)
    with pytest.raises(PoisonRead, match="fK: reads elements"):
        resident.launch({"pos": 0, "rows": 2}, {"new": np.ones((2, 24), np.float32)})


def test_one_id_is_one_counter(toy):
    program = matmul_multicast(toy)
    shape = program.shapes[0]
    first, *rest = shape.counters
    other = replace(rest[0], id=first.id, ahead=1)
    broken = replace(shape, counters=(first, other, *rest[1:], Counter("x", first.rect, "matrix", bits=8, id=0)))
    at_home = replace(broken, processes=tuple(edit_to_x(p) for p in broken.processes))
    with pytest.raises(ProtocolFault, match="shares id 0"):
        simulate(replace(program, shapes=(at_home,)), toy, tensors=ones(100, 70, 150))


def test_credits_have_bounds(toy):
    """Nobody takes the members' credits, so the third goes over what two bits hold."""
    broken = edited(matmul_multicast(toy, 40, 200, 50), "leadA", without(Wait))
    shape = broken.shapes[0]
    few = replace(shape, counters=tuple(replace(c, kind="CREDIT", bits=2) for c in shape.counters))
    with pytest.raises(ProtocolFault, match="a counter of 2 bits holds 4 credits"):
        simulate(replace(broken, shapes=(few,)), toy, functional=False)


def edit_to_x(process):
    return replace(process, body=(*process.body, Wait("x"))) if process.name == "leadB" else process


def test_a_broken_simulator_says_so(toy):
    resident = Simulator(edited(growing_cache(toy), "read", without(Wait)), toy)
    new = {"new": np.ones((2, 24), np.float32)}
    with pytest.raises(PoisonRead):
        resident.launch({"pos": 0, "rows": 2}, new)
    with pytest.raises(ArgumentReject, match="ended in a fault"):
        resident.launch({"pos": 0, "rows": 2}, new)


# --- launches -------------------------------------------------------------------------------------------------


def test_symbols_are_checked(toy):
    resident = Simulator(growing_cache(toy), toy)
    new = {"new": np.ones((1, 24), np.float32)}
    for symbols, words in (
        ({"pos": 0}, "symbol 'rows' is None"),
        ({"pos": 0, "rows": 33}, "symbol 'rows' is 33"),
        ({"pos": 0, "rows": 1, "heads": 2}, "no symbol 'heads'"),
        ({"pos": 1, "rows": 1}, "writes 'cache' from row 1"),
    ):
        with pytest.raises(LaunchReject, match=words):
            resident.launch(symbols, new)
    assert resident.launch({"pos": 0, "rows": 1}, new).cycles > 0


def test_a_position_may_go_back_and_not_ahead(toy):
    resident = Simulator(growing_cache(toy), toy)
    for pos in (0, 1, 2, 1):
        resident.launch({"pos": pos, "rows": 1}, {"new": np.ones((1, 24), np.float32)})
    with pytest.raises(LaunchReject, match="a first row from 0 to 2"):
        resident.launch({"pos": 3, "rows": 1}, {"new": np.ones((1, 24), np.float32)})


def test_arrays_are_checked(toy):
    program = matmul_multicast(toy, 40, 70, 50)
    good = ones()
    for tensors, words in (
        ({"a": good["a"]}, "weight 'b' was not given"),
        ({"b": good["b"]}, "input 'a' was not given"),
        ({**good, "a": good["a"][1:]}, r"'a' was given bfloat16 \[39, 70\]"),
        ({**good, "b": good["b"].astype(np.float32)}, "'b' was given float32"),
        ({**good, "a": good["a"] * 5}, "'a' holds values from 5 to 5"),
        ({**good, "d": good["a"]}, "no tensor 'd'"),
    ):
        with pytest.raises(LaunchReject, match=words):
            simulate(program, toy, tensors=tensors)


def test_indices_are_checked(toy):
    table = np.ones((50, 40), np.float16)
    for bad in (-1, 50):
        with pytest.raises(LaunchReject, match="'ids' holds indices"):
            simulate(
                gather(toy), toy, tensors={"table": table, "ids": np.array([0, bad], np.int32)}, symbols={"rows": 2}
            )


def test_only_resident_programs_of_this_target(toy, host):
    program = matmul_multicast(toy)
    with pytest.raises(ArgumentReject, match="is SIZED"):
        simulate(replace(program, phase="SIZED"), toy, functional=False)
    with pytest.raises(ArgumentReject, match="not for this host"):
        simulate(program, host, functional=False)
    twice = replace(program, workers=(*program.workers, replace(program.workers[0], name="again")))
    with pytest.raises(ArgumentReject, match=r"workers leadA and again share reader_a of site \(0, 0\)"):
        simulate(twice, toy, functional=False)


def test_a_store_stays_in_its_transition(toy):
    def elsewhere(node):
        if isinstance(node, Store) and node.tensor == "K":
            start = (quasi("pos") - 1, quasi(0))
            return (replace(node, window=replace(node.window, start=start)),)
        return (node,)

    resident = Simulator(edited(growing_cache(toy), "write", elsewhere), toy)
    with pytest.raises(SimulationFault):
        resident.launch({"pos": 0, "rows": 1}, {"new": np.ones((1, 24), np.float32)})


def test_a_load_without_a_reserved_slot(toy):
    broken = edited(local_matmul(toy, 8, 40, 40), "readA", lambda n: (n, n) if isinstance(n, Push) else (n,))
    with pytest.raises(ProtocolFault, match="push fA"):
        simulate(broken, toy, tensors=ones(8, 40, 40, np.float32))
    assert any(isinstance(s, Load) for s in broken.shapes[0].processes[0].body[0].body[0].body[0].body)
