"""What the processor that runs the program can do, as data: part of the name of a compiled object."""

from __future__ import annotations

import platform
import sys

import llvmlite
import llvmlite.binding as llvm
import msgspec

from pavane.reject import TargetReject


class Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`features` is LLVM's list (`+avx2,-avx512f,...`); `system` and `machine` choose how a worker parks."""

    name: str
    features: str
    system: str
    machine: str

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def block_dot(self) -> bool:
        """Four unsigned by signed byte products summed into 32 bits (vpdpbusd, 256 bits wide)."""
        return (self.has("avx512vnni") and self.has("avx512vl")) or self.has("avxvnni")

    @property
    def wide_block_dot(self) -> bool:
        """The same, 512 bits wide."""
        return self.wide and self.has("avx512vnni")

    @property
    def pair_dot(self) -> bool:
        """Two products of bf16 added to an f32 (vdpbf16ps, 512 bits wide)."""
        return self.wide and self.has("avx512bf16")

    @property
    def wide(self) -> bool:
        """32 registers of 16 f32."""
        return self.has("avx512f") and self.has("avx512vl") and self.has("avx512bw")


def host_cpu() -> Cpu:
    """This machine's processor."""
    return Cpu(
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), sys.platform, platform.machine().lower()
    )


def require_supported(cpu: Cpu) -> None:
    """Refuse an x86 processor without fused multiply-add and half-precision conversion (made before about 2013)."""
    missing = [f for f in ("fma", "f16c") if cpu.machine in ("x86_64", "amd64") and not cpu.has(f)]
    if missing:
        raise TargetReject(
            "this processor is too old to run programs", where=cpu.name, needed=", ".join(missing), remedy="use another"
        )


def compiler_key(cpu: Cpu) -> tuple[str, ...]:
    """What a compiled object depends on beside the program."""
    return (llvmlite.__version__, cpu.name, cpu.features, cpu.system, cpu.machine)
