"""The real artefacts that cases begin with, with certificates: small programs by hand and compiled, on both targets; of
the evidence's, some that have block floats, a growing cache, tensors on the sites, sections along a list of sites.
"""

from __future__ import annotations

import random
from functools import lru_cache

from pavane.artefact import Artefact
from tests.checker.editing import signed
from tests.checker.two_sections import twice_on_host, twice_on_toy
from tests.checker_oracle.programs import Case, decoder, host, names, small, toy
from tests.evidence.bases import base

_DECODER = "decoder_host"
_OF_EVIDENCE = ("blocks.9", "epochs.9", "places.1", "channels.1")
_BY_HAND = {
    "twice_on_toy": lambda: (twice_on_toy(toy()), toy()),
    "twice_on_host": lambda: (twice_on_host(host()), host()),
}


def seed_names() -> tuple[str, ...]:
    return (*_BY_HAND, *names(), *_OF_EVIDENCE, _DECODER)


@lru_cache
def _artefact(name: str) -> Artefact:
    program, target = _case(name)
    return Artefact(signed(program, target), target)


def _case(name: str) -> Case:
    if name in _BY_HAND:
        return _BY_HAND[name]()
    if name in _OF_EVIDENCE:
        return _drawn(name)
    return decoder("host", "rows") if name == _DECODER else small(name)


def _drawn(name: str) -> Case:
    found = base(name)
    if found is None:
        raise LookupError(f"the checker refuses {name}")
    return found


def artefact(name: str | None, rng: random.Random | None = None) -> Artefact:
    """The artefact of that name, or any."""
    return _artefact(name if name is not None else (rng or random.Random(0)).choice(seed_names()))
