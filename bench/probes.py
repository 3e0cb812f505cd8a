"""What the machine gives at this moment: bytes a second read from DRAM, and how long a word takes from one core to another.

Both change within seconds on a shared machine, so they are measured between the engines and logged beside them.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

import llvmlite.binding as llvm
import numpy as np

_BYTES = 128 << 20
_TURNS = 20000
_MEMCHR = ctypes.CDLL(None).memchr
_MEMCHR.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_MEMCHR.restype = ctypes.c_void_p

_BOUNCE = """
define void @bounce(ptr %mine, ptr %theirs, i64 %first, i64 %turns) {
entry:
  br label %turn
turn:
  %i = phi i64 [ 0, %entry ], [ %next, %after ]
  %number = add i64 %i, %first
  br label %wait
wait:
  %seen = load atomic i64, ptr %theirs acquire, align 8
  %there = icmp sge i64 %seen, %number
  br i1 %there, label %after, label %wait
after:
  %next = add i64 %i, 1
  store atomic i64 %next, ptr %mine release, align 8
  %done = icmp eq i64 %next, %turns
  br i1 %done, label %exit, label %turn
exit:
  ret void
}
"""


class Probes:
    """Ready to be asked; holds its buffers and its code."""

    def __init__(self) -> None:
        self._area = np.full(_BYTES, 2, np.uint8)  # written, so that it is memory
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._jit = llvm.create_lljit_compiler(llvm.Target.from_default_triple().create_target_machine(jit=True))
        self._code = llvm.JITLibraryBuilder().add_ir(_BOUNCE).export_symbol("bounce").link(self._jit, "probe")
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._bounce = ctypes.CFUNCTYPE(None, *kinds)(self._code["bounce"])

    def read_bytes_per_second(self, threads: int) -> float:
        """DRAM read by `memchr` over a buffer that no cache holds, its parts shared by threads; the better of two."""
        return max(self._read(threads) for _ in range(2))

    def _read(self, threads: int) -> float:
        share = _BYTES // threads
        readers = [
            threading.Thread(target=_MEMCHR, args=(self._area.ctypes.data + i * share, 1, share))
            for i in range(threads)
        ]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return _BYTES / (time.perf_counter() - start)

    def handshake_seconds(self) -> float | None:
        """One way, between the first two cores; None on one core."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            return None
        words = np.zeros(64, np.int64)
        mine, theirs = words.ctypes.data, words.ctypes.data + 256
        other = threading.Thread(target=self._side, args=(cores[1], theirs, mine, 1))
        start = time.perf_counter()
        other.start()
        here = threading.Thread(target=self._side, args=(cores[0], mine, theirs, 0))
        here.start()
        here.join()
        other.join()
        return (time.perf_counter() - start) / (2 * _TURNS)

    def _side(self, core: int, mine: int, theirs: int, first: int) -> None:
        os.sched_setaffinity(0, {core})
        self._bounce(mine, theirs, first, _TURNS)
