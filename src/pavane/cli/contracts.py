"""How a user names an accuracy contract."""

from __future__ import annotations

from typing import cast

from pavane.ir.types import Contract
from pavane.reject import ArgumentReject

CONTRACTS: dict[str, Contract] = {"float": "FLOAT", "int8": "INT8_ACTIVATIONS"}
DEFAULT_CONTRACT = "int8"  # as accurate as other engines that round activations, and faster


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
