"""A broken rule, as data: which rule, where, and what is wrong there.

A rule is a function that yields `Finding`s, (place, message) pairs; the table it stands in gives it its id. Nothing
here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

Finding = tuple[str, str]
Subject = TypeVar("Subject")
RuleTable = tuple[tuple[str, Callable[[Subject], Iterable[Finding]]], ...]


class Violation(msgspec.Struct, frozen=True):
    """`rule` is stable: tests, documents and other tools may rely on it."""

    rule: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.place}: {self.message}" if self.place else f"[{self.rule}] {self.message}"


def judged(table: RuleTable[Subject], subject: Subject) -> Iterator[Violation]:
    """Every violation that the rules of a table find in a subject, in the table's order."""
    for rule, find in table:
        for place, message in find(subject):
            yield Violation(rule, place, message)
