"""Counters between threads: one 32-bit word that only grows, and one that says how many threads sleep on it.

Comparisons are modular: reached when (value - target) as a signed number is not negative. A waiter spins for `spins`
turns (a pause each), then sleeps in the kernel (futex on Linux; short sleeps elsewhere), so that a thread that waits
long uses no CPU. Adding has release semantics, waiting acquire.
"""

from __future__ import annotations

from pavane.native.cpu import Cpu
from pavane.native.text import Code, Module

_FUTEX = {"x86_64": 202, "amd64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}
_WAIT_PRIVATE, _WAKE_PRIVATE, _EVERYONE = 128, 129, 2147483647
_SLEEP_MICROSECONDS = 100


def define_sync(module: Module, cpu: Cpu) -> None:
    """Write `wait_until(word, target, spins)` and `add_to(word, n)`."""
    _define_wait(module, cpu)
    _define_add(module, cpu)


def _futex(cpu: Cpu) -> int | None:
    return _FUTEX.get(cpu.machine) if cpu.system == "linux" else None


def _reached(code: Code, word: str, target: str) -> tuple[str, str]:
    value = code.value(f"load atomic i32, ptr {word} seq_cst, align 4")
    distance = code.value(f"sub i32 {value}, {target}")
    return value, code.value(f"icmp sge i32 {distance}, 0")


def _define_wait(module: Module, cpu: Cpu) -> None:
    code = Code(module, "wait_until", "ptr %word, i32 %target, i64 %spins", attributes="internal noinline nounwind")
    done, park, again = code.label(), code.label(), code.label()
    with code.loop("%spins"):
        onward = code.label()
        code.branch(_reached(code, "%word", "%target")[1], done, onward)
        code.open(onward)
        _pause(code, cpu)
    code.jump(park)
    code.open(park)
    sleepers = code.at("%word", "4")
    code.value(f"atomicrmw add ptr {sleepers}, i32 1 seq_cst")
    code.jump(again)
    code.open(again)
    value, reached = _reached(code, "%word", "%target")
    awake, asleep = code.label(), code.label()
    code.branch(reached, awake, asleep)
    code.open(asleep)
    _sleep(code, cpu, value)
    code.jump(again)
    code.open(awake)
    code.value(f"atomicrmw sub ptr {sleepers}, i32 1 seq_cst")
    code.jump(done)
    code.open(done)
    code.finish()


def _pause(code: Code, cpu: Cpu) -> None:
    if cpu.machine in ("x86_64", "amd64"):
        code.call("llvm.x86.sse2.pause", "void", "", "")
    elif cpu.machine in ("aarch64", "arm64"):
        code.call("llvm.aarch64.hint", "void", "i32 1", "i32")


def _sleep(code: Code, cpu: Cpu, value: str) -> None:
    number = _futex(cpu)
    if number is None:
        code.module.declare("usleep", "declare i32 @usleep(i32)")
        code.value(f"call i32 @usleep(i32 {_SLEEP_MICROSECONDS})")
        return
    _system_call(code, number, f"i64 {_WAIT_PRIVATE}, i32 {value}")


def _system_call(code: Code, number: int, operation: str) -> None:
    code.module.declare("syscall", "declare i64 @syscall(i64, ...)")
    code.value(f"call i64 (i64, ...) @syscall(i64 {number}, ptr %word, {operation}, ptr null, ptr null, i64 0)")


def _define_add(module: Module, cpu: Cpu) -> None:
    code = Code(module, "add_to", "ptr %word, i32 %n", attributes="internal nounwind")
    code.value("atomicrmw add ptr %word, i32 %n seq_cst")
    number = _futex(cpu)
    if number is not None:
        sleepers = code.value(f"load atomic i32, ptr {code.at('%word', '4')} seq_cst, align 4")
        with code.when(code.value(f"icmp ne i32 {sleepers}, 0")):
            _system_call(code, number, f"i64 {_WAKE_PRIVATE}, i64 {_EVERYONE}")
    code.finish()


def emit_wait(code: Code, word: str, target: str, spins: str) -> None:
    """Wait until the counter at `word` has reached `target` (i32)."""
    code.line(f"call void @wait_until(ptr {word}, i32 {target}, i64 {spins})")


def emit_add(code: Code, word: str, n: int) -> None:
    """Add n to the counter at `word`, and wake who sleeps on it."""
    code.line(f"call void @add_to(ptr {word}, i32 {n})")
