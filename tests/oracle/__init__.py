"""An oracle for small programs: it runs interleavings of a program at PERSISTENT and says what is unsafe or wrong.

    judge(program, target) -> Verdict        safe, or the first fault; not `judged` where it is too large to run

It imports `pavane.ir` and `pavane.targets` only, so it shares nothing with prover, checker, simulator or native. It
runs the program for a few values of the symbols, two or more epochs each (positions move as the launch allows), with
real bounded FIFOs and counters that compare modulo their bits. Every byte has a shadow: who wrote and read it last, as
vector clocks (so one interleaving shows the races of all that have its order of posts), and which element or block
stands there (so a read of garbled, foreign or unwritten bytes is found).

Every element of memory holds a **term**, an expression over what the launcher put into the tensors, and its number for
the data of this run. In every program that is judged, at every point of the symbols and in all epochs, every element
that a store writes is compared with the section's spec, which `meaning` evaluates on its own: their terms must be equal
under the laws that `laws` lists, for whatever data; so no tolerance and no coincidence of the data hides a wrong one.
Numbers serve for what is a matter of numbers: indices that are read at run time, integers that must fit their type,
results that are claimed exact to the bit; elsewhere they are compared within a tolerance, as a check of the laws.

What that is not: symbols, loop variables and sites are concrete, so a wrong one is found where it matters for a value
of the symbols that is run. A term is known by residues that its leaves, drawn at random, give it modulo a prime of 32
bits, not by its text: of unequal terms one pair in 2**32 / degree is taken for equal. What holds only because of the
range that a fill states (max(x, 0) = x where x is never negative) is no law, and a program that relies on it is called
wrong. The order of a sum is no matter of terms; that a contraction takes its blocks in ascending k, and no other's
between them, is watched apart.

    spaces   bytes and their shadows        cells    a number and its term        residues  arithmetic of terms
    laws     which terms are equal          record   terms written out            expressions
    data     what is in memory at launch    meaning  specs                        comparison  of terms and numbers
    expand   workers as lists of steps      compute  ops                          machine  interleavings
    rounding what types hold of numbers             homes    where tensors lie                chip     what it lacks
    contract what no program may say                sums     their order              figures  that engines do not have
    judge    the verdict
"""

from __future__ import annotations

from tests.oracle.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
