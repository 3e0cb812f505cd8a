"""A load, store or send under way: when its last byte is there is known once all of it has been served.

Whoever serves transfers (channels.py, links.py) keeps their requests until they have arrived and serves them in order
of arrival; of those that arrive at once, in the order in which they were made. `serve` with the present time brings
that up to date, so no request is ever served before one that arrives earlier.
"""

from __future__ import annotations

from collections.abc import Callable


class Transfer:
    """`asked_at`: when the last of its requests arrives. Once everything that arrives by then is served, `done_at` is
    when the last byte is there.

    `effect` (functional mode) moves the data: when it is done, at the latest when a fence has waited for it.
    """

    __slots__ = ("asked_at", "done_at", "effect")

    def __init__(self, asked_at: int = 0, done_at: int = 0) -> None:
        self.asked_at = asked_at
        self.done_at = done_at
        self.effect: Callable[[], None] | None = None

    def land(self) -> None:
        """Move the data, once."""
        effect, self.effect = self.effect, None
        if effect is not None:
            effect()
