"""The refusal of programs that are right and that this machine's code does not cover."""

from __future__ import annotations

from pavane.reject import OutsideFragment


def outside(what: str, where: str, needed: str = "") -> OutsideFragment:
    """To be raised: what cannot run, where it stands, and what it would take."""
    remedy = "simulate it (`pavane simulate`), or compile its source for the target `host`"
    return OutsideFragment(what, where=where, needed=needed, remedy=remedy)
