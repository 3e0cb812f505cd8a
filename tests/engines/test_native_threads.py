"""The resident threads: asleep when idle, ended by close, by collection and at exit, unharmed by Ctrl-C and by many
callers.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pavane import native
from pavane.reject import LaunchReject
from pavane.targets.load import load_target
from tests.engines.native_programs import accepted, as_stored
from tests.examples import norm_product_host

TARGET = load_target("host", 3)
X = np.linspace(-1, 1, 64, dtype=np.float32)[None, :]


def loaded() -> native.NativeProgram:
    rng = np.random.default_rng(0)
    weights = {"w": as_stored(rng.standard_normal((96, 64)), "q8_0"), "g": np.ones(64, np.float32)}
    return native.load(norm_product_host(TARGET), TARGET, weights=weights, accept=accepted)


def resident_threads() -> int:
    return sum(thread.name.startswith("pavane-") for thread in threading.enumerate())


def test_close_ends_the_threads():
    before = resident_threads()
    with loaded():
        assert resident_threads() == before + 2
    assert resident_threads() == before


def test_collection_ends_the_threads():
    before = resident_threads()
    program = loaded()
    program.launch({"rows": 1}, {"x": X})
    del program
    gc.collect()
    assert resident_threads() == before


def test_threads_that_the_system_does_not_give(monkeypatch):
    """Those that it gave end before what they wait on goes."""
    before, start, asked = resident_threads(), threading.Thread.start, []

    def few(thread: threading.Thread) -> None:
        asked.append(thread.name)
        if len(asked) > 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", few)
        with pytest.raises(LaunchReject, match=r"gives no thread .* needed 2 threads, available 1"):
            loaded()
    assert asked == ["pavane-1", "pavane-2"]
    assert resident_threads() == before
    with loaded() as program:
        program.launch({"rows": 1}, {"x": X})


def test_an_idle_program_uses_no_cpu():
    with loaded() as program:
        program.launch({"rows": 1}, {"x": X})
        time.sleep(0.05)
        start = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - start < 0.02


def test_launches_after_sleep_and_in_a_row_give_the_same():
    with loaded() as program:
        program.launch({"rows": 1}, {"x": X})
        first = program.tensor("y").copy()
        for pause in [0.0] * 300 + [0.002] * 20:
            time.sleep(pause)
            program.tensor("y")[...] = 0
            program.launch({"rows": 1}, {"x": X})
            assert np.array_equal(program.tensor("y"), first)


@pytest.mark.skipif(sys.platform == "win32", reason="signals to oneself differ there")
def test_an_interrupt_comes_through_and_harms_nothing():
    with loaded() as program:
        program.launch({"rows": 1}, {"x": X})
        first = program.tensor("y").copy()
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                program.launch({"rows": 1}, {"x": X})
        timer.join()
        program.launch({"rows": 1}, {"x": X})
        assert np.array_equal(program.tensor("y"), first)


def test_many_callers_take_turns():
    with loaded() as program:
        failures: list[str] = []

        def call() -> None:
            for _ in range(50):
                program.launch({"rows": 1}, {"x": X})
            if not np.isfinite(program.tensor("y")).all():
                failures.append("not finite")

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert not failures


def test_a_process_ends_without_close():
    script = (
        "from tests.engines.test_native_threads import X, loaded\n"
        "program = loaded()\n"
        "program.launch({'rows': 1}, {'x': X})\n"
        "print(float(program.tensor('y')[0, 0]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    with loaded() as program:
        program.launch({"rows": 1}, {"x": X})
        assert float(done.stdout) == float(program.tensor("y")[0, 0])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say where a thread may run")
def test_the_caller_may_run_where_it_could_before():
    before = os.sched_getaffinity(0)
    target = load_target("host", len(before))
    weights = {"w": as_stored(np.ones((96, 64)), "q8_0"), "g": np.ones(64, np.float32)}
    with native.load(norm_product_host(target), target, weights=weights, accept=accepted) as program:
        program.launch({"rows": 1}, {"x": X})
        assert os.sched_getaffinity(0) == before
