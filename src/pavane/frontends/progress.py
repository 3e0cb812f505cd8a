"""How long work says how far it is: `progress(what, bytes done, bytes in all)`."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
