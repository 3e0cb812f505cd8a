"""The threads that carry a program: resident, asleep between epochs, each on a core of its own where there are enough.

The caller of an epoch is thread 0; it is held to its core for the epoch and let go after it. (With only the residents
pinned, a busy machine puts the caller on a resident's core, and every boundary between sections becomes a switch of
threads.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator

import numpy as np

from pavane.native.compile import Loaded
from pavane.native.layout import SPINS
from pavane.reject import LaunchReject

_SPINS = 1500  # pauses before a waiter sleeps: 35 to 70 microseconds
_SPINS_CROWDED = 20  # where threads outnumber cores, another thread may need this core
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RESIDENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Crew:
    """Threads 1 .. count-1; thread 0 is whoever calls `run`. `loaded` and `control` outlive it."""

    def __init__(self, loaded: Loaded, control: np.ndarray, count: int) -> None:
        self._launch, self._dismiss = _ENTRY(loaded.launch), _ENTRY(loaded.dismiss)
        self._resident = _RESIDENT(loaded.resident)
        self._control = control.ctypes.data
        cores = available_cores()
        crowded = count > (len(cores) or os.cpu_count() or 1)
        control[SPINS : SPINS + 8].view(np.int64)[0] = _SPINS_CROWDED if crowded else _SPINS
        self._pins: list[int | None] = [*cores[:count]] if 1 < count <= len(cores) else [None] * count
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"pavane-{number}", daemon=True)
            for number in range(1, count)
        ]
        self._start()

    def _start(self) -> None:
        """Start every thread, or end those that run."""
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                needed, self._threads = len(self._threads), self._threads[:number]
                self.dismiss()
                raise LaunchReject(
                    "the system gives no thread to each engine of each site",
                    needed=f"{needed} threads",
                    available=f"{number}",
                    remedy="take a target of fewer sites",
                ) from error

    def _serve(self, number: int) -> None:
        with _on_core(self._pins[number]):
            self._resident(self._control, number)

    def run(self) -> None:
        """One epoch. A signal is seen when it has ended."""
        with _on_core(self._pins[0]):
            self._launch(self._control)

    def dismiss(self) -> None:
        """Let every thread end, and wait for it. Not during an epoch."""
        if self._threads:
            self._dismiss(self._control)
        for thread in self._threads:
            thread.join()
        self._threads = []


@contextlib.contextmanager
def _on_core(core: int | None) -> Iterator[None]:
    """Hold the calling thread to a core, as far as the system lets it."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use, ascending; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
