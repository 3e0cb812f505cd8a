"""Equal parts in one form, so that equal programs have equal bytes. Parts call this from their `__post_init__`.

msgspec leaves a field out where it holds its default, the very object; an equal copy, as a file that states it makes
one, it writes. And 0.0, -0.0 and 0 are equal, but written differently.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec.structs import force_setattr


def share_defaults(part: msgspec.Struct) -> None:
    """Put the default itself where a field holds an equal copy of it."""
    for name, default in _copied_defaults(type(part)):
        value = getattr(part, name)
        if value is not default and value == default:
            force_setattr(part, name, default)


def one_number(part: msgspec.Struct, name: str) -> None:
    """Put the float that is written where a field of that type holds another number that is equal to it."""
    value = getattr(part, name)
    if isinstance(value, int) or value == 0.0:
        force_setattr(part, name, float(value) + 0.0)


@cache
def _copied_defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields with defaults that have copies: Python has each small integer, (), "", None, True and False once."""
    defaults = kind.__struct_defaults__
    named = zip(kind.__struct_fields__[-len(defaults) :], defaults, strict=True) if defaults else ()
    return tuple((name, d) for name, d in named if isinstance(d, str | float | msgspec.Struct) and d != "")
