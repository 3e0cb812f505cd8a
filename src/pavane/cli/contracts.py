"""How a user names an accuracy contract, and what matrices are stored as."""

from __future__ import annotations

from typing import cast

from pavane.ir.types import STORED_WEIGHTS, Contract, StoredWeights
from pavane.reject import ArgumentReject

CONTRACTS: dict[str, Contract] = {"float": "FLOAT", "int8": "INT8_ACTIVATIONS"}
DEFAULT_CONTRACT = "int8"  # as accurate as other engines that round activations, and faster
DEFAULT_WEIGHTS = "q8_0"
WEIGHTS_HELP = "What matrices are stored as: q8_0; bfp8 or bfp4 where the chip takes block floats."


def as_contract(text: str) -> Contract:
    """`float` or `int8` (the contracts' own names are understood too)."""
    name = CONTRACTS.get(text.lower(), text.upper())
    if name not in CONTRACTS.values():
        raise ArgumentReject(
            f"unknown contract {text!r}",
            needed="float or int8",
            remedy="int8 rounds activations to 8 bits a block of 32",
        )
    return cast(Contract, name)


def as_weights(text: str) -> StoredWeights:
    """`q8_0`, `bfp8` or `bfp4`."""
    if text.lower() not in STORED_WEIGHTS:
        raise ArgumentReject(
            f"weights are not stored as {text!r}",
            needed=" or ".join(STORED_WEIGHTS),
            remedy="block floats (bfp8, bfp4) are for chips that take them, as wormhole_n150 does",
        )
    return cast(StoredWeights, text.lower())
