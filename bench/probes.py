"""What the machine gives at this moment: bytes a second read from DRAM, and how long a word takes from one core to
another.

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
_STEP_BYTES, _AHEAD_BYTES = 512, 6144


def _reading() -> str:
    """`i32 read(area, bytes)`: every line once, in order, with prefetch."""
    kind, loads = "<16 x i32>", []
    for i in range(_STEP_BYTES // 64):
        loads += [
            f"  %p{i} = getelementptr i8, ptr %place, i64 {64 * i}",
            f"  %f{i} = getelementptr i8, ptr %p{i}, i64 {_AHEAD_BYTES}",
            f"  call void @llvm.prefetch.p0(ptr %f{i}, i32 0, i32 3, i32 1)",
            f"  %v{i} = load {kind}, ptr %p{i}, align 64",
            f"  %s{i} = xor {kind} %{'sum' if i == 0 else f's{i - 1}'}, %v{i}",
        ]
    return "\n".join([
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare i32 @llvm.vector.reduce.xor.v16i32({kind})",
        "define i32 @read(ptr %area, i64 %bytes) {",
        "entry:", "  br label %turn", "turn:",
        "  %at = phi i64 [ 0, %entry ], [ %next, %turn ]",
        f"  %sum = phi {kind} [ zeroinitializer, %entry ], [ %s{_STEP_BYTES // 64 - 1}, %turn ]",
        "  %place = getelementptr i8, ptr %area, i64 %at", *loads,
        f"  %next = add i64 %at, {_STEP_BYTES}", "  %more = icmp slt i64 %next, %bytes",
        "  br i1 %more, label %turn, label %exit", "exit:",
        f"  %all = call i32 @llvm.vector.reduce.xor.v16i32({kind} %s{_STEP_BYTES // 64 - 1})",
        "  ret i32 %all", "}",
    ])  # fmt: skip


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
        raw = np.full(_BYTES + 64, 2, np.uint8)  # written, so that it is memory
        self._area = raw[-raw.ctypes.data % 64 :][:_BYTES]
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True
        )
        self._jit = llvm.create_lljit_compiler(machine)
        code = machine.emit_object(llvm.parse_assembly(_reading() + _BOUNCE))
        library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol("bounce").export_symbol("read")
        self._code = library.link(self._jit, "probe")
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._bounce = ctypes.CFUNCTYPE(None, *kinds)(self._code["bounce"])
        self._reader = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)(self._code["read"])

    def read_bytes_per_second(self, threads: int) -> float:
        """DRAM read in order, with prefetch, over a buffer that no cache holds, its parts shared by threads;
        the best of three."""
        return max(self._read(threads) for _ in range(3))

    def _read(self, threads: int) -> float:
        share = _BYTES // threads
        readers = [
            threading.Thread(target=self._reader, args=(self._area.ctypes.data + i * share, share))
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
