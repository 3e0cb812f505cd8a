"""What a load and a launch refuse, sharing, and the guard of the state's rows."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import native
from pavane.ir.expr import at, fn
from pavane.ir.types import Ints
from pavane.reject import BoundsRefused, LaunchReject
from pavane.sim import Simulator
from pavane.targets.load import load_target
from tests.building import COL, ROW
from tests.engines.native_programs import accepted, as_stored, generic_program
from tests.engines.sim_programs import gather, growing_cache
from tests.examples import attention_host, norm_product_host

HOST = load_target("host", 1)
X = np.ones((2, 64), np.float32)
TWO = {"x": ("f32", 2, 8), "z": ("f32", 2, 8)}


def arrays() -> dict[str, np.ndarray]:
    return {"w": as_stored(np.ones((96, 64)), "q8_0"), "g": np.ones(64, np.float32)}


@pytest.fixture
def ready():
    with native.load(norm_product_host(HOST), HOST, weights=arrays(), accept=accepted) as program:
        yield program


@pytest.mark.parametrize(
    ("symbols", "inputs", "message"),
    [
        ({}, {"x": X}, "rows is missing"),
        ({"rows": 2, "pos": 1}, {"x": X}, "pos is not a symbol"),
        ({"rows": 0}, {"x": X}, "outside"),
        ({"rows": 33}, {"x": X}, "outside"),
        ({"rows": 2}, {}, "x is missing"),
        ({"rows": 2}, {"x": X, "z": X}, "z is not an input"),
        ({"rows": 1}, {"x": X}, "needed float32"),
        ({"rows": 2}, {"x": X.astype(np.float64)}, "needed float32"),
    ],
)
def test_launches_that_are_refused(ready, symbols, inputs, message):
    with pytest.raises(LaunchReject, match=message):
        ready.launch(symbols, inputs)
    ready.launch({"rows": 2}, {"x": X})
    assert ready.tensor("y").shape == (2, 96)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("g"), "g is missing"),
        (lambda w: w.update(extra=X), "extra is not a weight"),
        (lambda w: w.update(g=np.ones(63, np.float32)), "256 bytes"),
        (lambda w: w.update(g=np.ones(64, np.float64)), "float32"),
        (lambda w: w.update(w=w["w"][:, :-1]), "uint8"),
        (lambda w: w.update(g=[1.0] * 64), "no numpy array"),
        (lambda w: w.update(g=None), "no numpy array"),
    ],
)
def test_weights_that_are_refused(change, message):
    weights = arrays()
    change(weights)
    with pytest.raises(LaunchReject, match=message):
        native.load(norm_product_host(HOST), HOST, weights=weights, accept=accepted)


def test_programs_that_are_refused():
    program = norm_product_host(HOST)
    with pytest.raises(LaunchReject, match="not finished"):
        native.load(replace(program, phase="SIZED"), HOST, weights=arrays(), accept=accepted)
    with pytest.raises(LaunchReject, match="another target"):
        native.load(program, load_target("host", 2), weights=arrays(), accept=accepted)

    def refuse(program, target):
        raise BoundsRefused("a window passes its tensor's end")

    with pytest.raises(BoundsRefused):
        native.load(program, HOST, weights=arrays(), accept=refuse)


def test_after_close():
    program = native.load(norm_product_host(HOST), HOST, weights=arrays(), accept=accepted)
    program.launch({"rows": 2}, {"x": X})
    view = program.tensor("y")
    program.close()
    program.close()
    with pytest.raises(LaunchReject, match="closed"):
        program.launch({"rows": 2}, {"x": X})
    assert np.isfinite(view).all()
    with pytest.raises(LaunchReject, match="no such tensor"):
        program.tensor("nothing")


def test_indices_are_checked(toy):
    program = gather(toy)
    tensors = tuple(replace(t, fill=Ints(0, 49)) if t.name == "ids" else t for t in program.tensors)
    with native.load(
        replace(program, tensors=tensors), toy, weights={"table": np.ones((50, 40), np.float16)}, accept=accepted
    ) as ready:
        for bad in (-1, 50):
            with pytest.raises(LaunchReject, match=f"ids holds values from {min(bad, 0)} to {max(bad, 0)}"):
                ready.launch({"rows": 2}, {"ids": np.array([bad, 0], np.int32)})


def test_the_state_has_no_holes(toy):
    new = np.ones((2, 24), np.float32)
    with native.load(growing_cache(toy), toy, weights={}, accept=accepted) as ready:
        with pytest.raises(LaunchReject, match="from row 1, and 0 rows"):
            ready.launch({"pos": 1, "rows": 2}, {"new": new})
        ready.launch({"pos": 0, "rows": 2}, {"new": new})
        with pytest.raises(LaunchReject, match="from row 3, and 2 rows"):
            ready.launch({"pos": 3, "rows": 2}, {"new": new})
        ready.launch({"pos": 2, "rows": 2}, {"new": new})
        ready.launch({"pos": 1, "rows": 2}, {"new": new})
        assert (ready.tensor("y") == 3).all()
        with pytest.raises(LaunchReject, match="from row 4, and 3 rows"):
            ready.launch({"pos": 4, "rows": 2}, {"new": new})


@pytest.mark.parametrize("ended", [False, True])
def test_the_rows_that_are_there_after_a_signal(toy, monkeypatch, ended):
    """Those that are there whether the epoch that went back in them has been run or not."""
    new = np.ones((2, 24), np.float32)
    with native.load(growing_cache(toy), toy, weights={}, accept=accepted) as ready:
        for pos in (0, 2, 4):
            ready.launch({"pos": pos, "rows": 2}, {"new": new})
        run = ready._crew.run

        def interrupted() -> None:
            if ended:
                run()
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(ready._crew, "run", interrupted)
            for pos, allowed in ((1, 3), (3, 3)):
                with pytest.raises(KeyboardInterrupt):
                    ready.launch({"pos": pos, "rows": 2}, {"new": new})
                with pytest.raises(LaunchReject, match=f"from row {allowed + 1}, and {allowed} rows"):
                    ready.launch({"pos": allowed + 1, "rows": 2}, {"new": new})
        ready.launch({"pos": 3, "rows": 2}, {"new": new})
        assert (ready.tensor("y") == 5).all()


def test_two_programs_share_state(toy):
    """The same bytes and the same watermark; declarations must be equal."""
    program = growing_cache(toy)
    with native.load(program, toy, weights={}, accept=accepted) as first:
        other = native.load(replace(program, name="second"), toy, weights={}, share=first, accept=accepted)
        with other:
            first.launch({"pos": 0, "rows": 2}, {"new": np.full((2, 24), 3, np.float32)})
            other.launch({"pos": 2, "rows": 1}, {"new": np.ones((1, 24), np.float32)})
            assert (other.tensor("y") == 7).all()
            assert np.array_equal(first.tensor("cache"), other.tensor("cache"))
            first.launch({"pos": 3, "rows": 1}, {"new": np.ones((1, 24), np.float32)})
            assert (first.tensor("y") == 8).all()
            with first.memory.lock:
                waiting = Thread(
                    target=other.launch, args=({"pos": 0, "rows": 1}, {"new": np.ones((1, 24), np.float32)})
                )
                waiting.start()
                waiting.join(0.2)
                assert waiting.is_alive()
            waiting.join()
            assert (other.tensor("y") == 1).all()
        with pytest.raises(LaunchReject, match="cache is declared differently"):
            native.load(growing_cache(toy, context=40), toy, weights={}, share=first, accept=accepted)


def test_sharing_takes_no_weights():
    program = attention_host(HOST)
    caches = {n: np.zeros((64, 1, 16), np.float16) for n in ("kc", "vc")}
    with native.load(program, HOST, weights=caches, accept=accepted) as first:
        with pytest.raises(LaunchReject, match="takes none"):
            native.load(program, HOST, weights=caches, share=first, accept=accepted)
        with pytest.raises(LaunchReject, match="w is not in the other program"):
            native.load(norm_product_host(HOST), HOST, weights={}, share=first, accept=accepted)


def test_an_input_may_lie_where_another_goes():
    """All are copied as they were at the launch."""
    program = generic_program(HOST, fn("sub", at("x", ROW, COL), at("z", ROW, COL)), TWO, 2, 8)
    x, z = np.arange(16, dtype=np.float32).reshape(2, 8), np.full((2, 8), 100, np.float32)
    with native.load(program, HOST, weights={}, accept=accepted) as ready:
        for swapped in (False, True, True):
            places = {"x": ready.input("z", {}), "z": ready.input("x", {})} if swapped else {"x": x, "z": z}
            want = places["x"] - places["z"]
            ready.launch({}, places)
            assert np.array_equal(ready.tensor("Y"), want)
        ready.launch({}, {"x": z, "z": ready.input("x", {})[::-1]})
        assert np.array_equal(ready.tensor("Y"), z - x[::-1])


def test_hidden_elements_are_checked_too():
    """What a masked array hides is copied with the rest."""
    program = generic_program(HOST, at("x", ROW, COL), {"x": ("i32", 1, 4)}, 1, 4)
    tensors = tuple(replace(t, fill=Ints(0, 4)) if t.name == "x" else t for t in program.tensors)
    program = replace(program, tensors=tensors)
    ids = np.ma.array([[0, 1, 99, 4]], mask=[[False, False, True, False]], dtype=np.int32)
    ready = native.load(program, HOST, weights={}, accept=accepted)
    for engine in (ready, Simulator(program, HOST)):
        with pytest.raises(LaunchReject, match="from 0 to 99"):
            engine.launch({}, {"x": ids})
    ready.close()


def test_an_input_that_is_in_place_is_not_copied(ready):
    place = ready.input("x", {"rows": 2})
    place[...] = np.arange(128).reshape(2, 64) / 64
    ready.launch({"rows": 2}, {"x": place})
    found = ready.tensor("y").copy()
    ready.launch({"rows": 2}, {"x": X})
    assert np.array_equal(place, X)
    ready.launch({"rows": 2}, {"x": np.arange(128, dtype=np.float32).reshape(2, 64) / 64})
    assert np.array_equal(ready.tensor("y"), found)


def test_the_same_bytes_in_another_order_are_copied(ready):
    place = ready.input("x", {"rows": 2})
    place[...] = np.arange(128).reshape(2, 64)
    ready.launch({"rows": 2}, {"x": place[:, ::-1][:, ::-1]})
    ready.launch({"rows": 2}, {"x": np.broadcast_to(place[:1], (2, 64))})
    assert np.array_equal(place[1], np.arange(64))


@pytest.mark.parametrize("name", ["w", "y", "z"])
def test_only_inputs_have_a_place(ready, name):
    with pytest.raises(LaunchReject, match="no such input"):
        ready.input(name, {"rows": 2})


def test_weights_are_used_in_place():
    weights = arrays()
    with native.load(norm_product_host(HOST), HOST, weights=weights, accept=accepted) as ready:
        assert np.shares_memory(ready.tensor("w"), weights["w"])
