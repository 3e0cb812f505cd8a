"""An oracle for small programs: it runs interleavings of a program at PERSISTENT and says what is unsafe or wrong.

    judge(program, target) -> Verdict        safe, or the first fault; not `judged` where it is too large to run

It imports `pavane.ir` and `pavane.targets` only, so it shares nothing with prover, checker, simulator or native. It
runs the program for a few values of the symbols, two epochs each, with real bounded FIFOs and counters. Every byte has
a shadow: who wrote and read it last, as vector clocks (so one interleaving shows the races of all that have its order
of posts), and which element stands there (so a read of garbled, foreign or unwritten bytes is found). What a store
writes is compared with the section's spec, which `meaning` evaluates on its own.

    spaces   bytes and their shadows        terms    expressions on numbers       meaning  specs
    expand   workers as lists of steps      compute  ops                         machine  interleavings
    chip     what the target does not have          contract what no program may say          judge    the verdict
"""

from __future__ import annotations

from tests.oracle.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
