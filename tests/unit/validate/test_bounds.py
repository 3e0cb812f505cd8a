"""What rules may conclude from bounds: where none can be given, nothing is concluded."""

from __future__ import annotations

from pavane.ir.program import Span
from pavane.ir.quasi import MAX_MAGNITUDE, Domain, quasi
from pavane.validate import guards
from pavane.validate.section import is_never_empty, is_never_negative

DOMAIN = Domain([("n", 0, 5), ("m", 0, 3), ("huge", MAX_MAGNITUDE // 2, MAX_MAGNITUDE)])
H, N, M = quasi("h"), quasi("n"), quasi("m")


def test_never_negative_is_shown_or_not_claimed() -> None:
    assert is_never_negative(N, DOMAIN)
    assert is_never_negative(N - M + 3, DOMAIN)
    assert not is_never_negative(N - 1, DOMAIN)
    assert not is_never_negative(quasi("unknown"), DOMAIN)
    assert not is_never_negative(quasi("huge") * 8 - 1, DOMAIN)


def test_a_span_without_known_bounds_may_be_empty() -> None:
    assert is_never_empty(Span(N, 4, quasi(6)), DOMAIN)
    assert not is_never_empty(Span(N, 4, quasi(5)), DOMAIN)
    assert not is_never_empty(Span(quasi("unknown"), 4, quasi(5)), DOMAIN)


def test_a_guard_implies_one_with_a_limit_that_is_never_lower() -> None:
    known = Span(H, 1, N)
    assert guards._implies(known, Span(H, 1, N + M), DOMAIN)
    assert not guards._implies(known, Span(H, 1, N - M), DOMAIN)
    assert not guards._implies(known, Span(H, 1, quasi("unknown")), DOMAIN)
