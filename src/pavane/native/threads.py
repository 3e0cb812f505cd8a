"""The threads that carry a program: resident, pinned where there is a core for each, asleep between epochs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading

import numpy as np

from pavane.native.compile import Loaded
from pavane.native.layout import SPINS

_SPINS = 1500  # pauses before a waiter sleeps: 35 to 70 microseconds
_SPINS_CROWDED = 20  # where threads outnumber cores, another thread may need this core
_DOOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RESIDENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Crew:
    """Threads 1 .. count-1; thread 0 is whoever calls `run`. `loaded` and `control` outlive it."""

    def __init__(self, loaded: Loaded, control: np.ndarray, count: int) -> None:
        self._launch, self._dismiss, self._resident = _DOOR(loaded.launch), _DOOR(loaded.dismiss), _RESIDENT(loaded.resident)
        self._control = control.ctypes.data
        cores = available_cores()
        crowded = count > (len(cores) or os.cpu_count() or 1)
        control[SPINS : SPINS + 8].view(np.int64)[0] = _SPINS_CROWDED if crowded else _SPINS
        pins = cores[:count] if 1 < count <= len(cores) else [None] * count
        self._threads = [
            threading.Thread(target=self._serve, args=(number, pins[number]), name=f"pavane-{number}", daemon=True)
            for number in range(1, count)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, number: int, core: int | None) -> None:
        if core is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {core})
        self._resident(self._control, number)

    def run(self) -> None:
        """One epoch. A signal is seen when it has ended."""
        self._launch(self._control)

    def dismiss(self) -> None:
        """Let every thread end, and wait for it. Not during an epoch."""
        if self._threads:
            self._dismiss(self._control)
        for thread in self._threads:
            thread.join()
        self._threads = []


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use, ascending; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
