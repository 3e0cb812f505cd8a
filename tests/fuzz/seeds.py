"""The real artefacts that cases begin with: small programs by hand and compiled, on both targets, with certificates."""

from __future__ import annotations

import random
from functools import lru_cache

from pavane.artefact import Artefact
from tests.checker.editing import signed
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.checker_oracle.programs import Case, decoder, host, names, small, toy

_DECODER = "decoder_host"
_BY_HAND = {
    "twice_on_toy": lambda: (twice_on_toy(toy()), toy()),
    "twice_on_host": lambda: (twice_on_host(host()), host()),
}


def seed_names() -> tuple[str, ...]:
    return (*_BY_HAND, *names(), _DECODER)


@lru_cache
def _artefact(name: str) -> Artefact:
    program, target = _case(name)
    return Artefact(signed(program, target), target)


def _case(name: str) -> Case:
    if name in _BY_HAND:
        return _BY_HAND[name]()
    return decoder("host", "rows") if name == _DECODER else small(name)


def artefact(name: str | None, rng: random.Random | None = None) -> Artefact:
    """The artefact of that name, or any."""
    return _artefact(name if name is not None else (rng or random.Random(0)).choice(seed_names()))
