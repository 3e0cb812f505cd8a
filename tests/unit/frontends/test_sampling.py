"""Picking the next token."""

from __future__ import annotations

import numpy as np
import pytest

from pavane.frontends.sampling import Sampler
from pavane.reject import ArgumentReject

LOGITS = np.log(np.array([0.1, 0.4, 0.4, 0.05, 0.05], np.float32))


def draws(count: int = 4000, **settings: float) -> np.ndarray:
    sampler = Sampler(**settings)
    return np.bincount([sampler.pick(LOGITS) for _ in range(count)], minlength=5) / count


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert Sampler().pick(LOGITS) == 1
    assert Sampler(temperature=0.0, top_k=3, seed=7).pick(LOGITS) == 1


def test_a_seed_fixes_the_draws() -> None:
    first, again, other = (Sampler(temperature=1.0, seed=seed) for seed in (3, 3, 4))
    drawn = [first.pick(LOGITS) for _ in range(50)]
    assert drawn == [again.pick(LOGITS) for _ in range(50)]
    assert drawn != [other.pick(LOGITS) for _ in range(50)]


def test_draws_follow_the_distribution() -> None:
    assert np.allclose(draws(temperature=1.0), [0.1, 0.4, 0.4, 0.05, 0.05], atol=0.03)
    squared = np.array([0.01, 0.16, 0.16, 0.0025, 0.0025])
    assert np.allclose(draws(temperature=0.5), squared / squared.sum(), atol=0.03)


def test_top_k_and_top_p_cut_the_tail() -> None:
    assert np.allclose(draws(temperature=1.0, top_k=3), [1 / 9, 4 / 9, 4 / 9, 0, 0], atol=0.03)
    assert np.allclose(draws(temperature=1.0, top_p=0.7), [0, 0.5, 0.5, 0, 0], atol=0.03)
    assert draws(temperature=1.0, top_k=1)[1] == 1.0
    assert draws(temperature=1.0, top_p=1e-9)[1] == 1.0
    assert draws(temperature=1.0, top_k=99, top_p=1.0)[4] > 0


def test_extreme_logits_are_drawn_without_warnings() -> None:
    logits = np.array([-np.inf, 3e38, -3e38], np.float32)
    with np.errstate(all="raise", under="ignore"):
        assert Sampler(temperature=1e-3, top_p=0.9).pick(logits) == 1


def test_refuses_logits_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="nan"):
        Sampler().pick(np.array([1.0, np.nan], np.float32))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"seed": -1},
    ],
)
def test_refuses_senseless_settings(settings: dict[str, float]) -> None:
    with pytest.raises(ArgumentReject, match=next(iter(settings)).replace("_", "-")):
        Sampler(**settings)
