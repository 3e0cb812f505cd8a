"""Decode and prompt on one chip: their weights lie in the same channels, and that is checked where they share them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pavane.ir.program import Program
from pavane.reject import LaunchReject
from pavane.sim import Simulator
from tests.adjacent import chip
from tests.chips.test_adjacent import LAYER, TOKENS
from tests.decoders import compile_decoder, random_weights, run_simulator, stored_weights

CHIP = chip()


def compiled(rows: int | str) -> Program:
    return compile_decoder(LAYER, CHIP, rows, quantised=True, contract="FLOAT", context=20)


def test_a_prompt_and_the_token_after_it_share_the_weights_beside_the_channels():
    decode, prompt = compiled(1), compiled("rows")
    weights = stored_weights(LAYER, random_weights(LAYER, 3), True)
    expected = run_simulator(decode, CHIP, weights, TOKENS, 1)
    first = Simulator(prompt, CHIP, weights)
    then = Simulator(decode, CHIP, share=first)
    ids = np.array(TOKENS, np.int32)
    block = first.launch({"pos": 0, "rows": 4}, {"ids": ids[:4]}).outputs["logits"]
    token = then.launch({"pos": 4}, {"ids": ids[4:]}).outputs["logits"]
    assert np.array_equal(np.concatenate([block, token]), expected)


def test_weights_in_other_channels_are_not_shared():
    decode, prompt = compiled(1), compiled("rows")
    other = replace(prompt, tensors=tuple(replace(t, interleave_bytes=0) for t in prompt.tensors))
    with pytest.raises(LaunchReject, match="cannot share") as caught:
        Simulator(decode, CHIP, functional=False, share=Simulator(other, CHIP, functional=False))
    assert any(term.startswith("layers.0.gate is declared differently") for term in caught.value.terms)
