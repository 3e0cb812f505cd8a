"""How many tokens of a prompt a target takes in at once."""

from __future__ import annotations

from pavane.targets.descriptor import SpatialTarget


def prompt_rows(target: SpatialTarget) -> tuple[int, ...]:
    """The most tokens of an epoch, ascending: of each prompt program that is made for the target.

    Where memory is addressed in place a block of 64 reads the weights half as often as two of 32, and takes no more of
    a site's memory. Several sites then share it by rows, which would leave a shorter prompt to one of them: for such
    there is a program of 32, shared by columns.
    """
    if not target.alias:
        return (32,)
    return (64,) if target.sites == 1 else (32, 64)
