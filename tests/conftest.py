"""What all tests share: the two targets, and a quick or a thorough profile of random tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target

settings.register_profile("quick", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell that runs its commands in the background lets them ignore interrupts, which tests send themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what comes out now")


@pytest.fixture(scope="session")
def toy() -> SpatialTarget:
    return load_target("toy")


@pytest.fixture(scope="session")
def host() -> SpatialTarget:
    return load_target("host", cores=2)
