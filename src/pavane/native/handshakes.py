"""Posts and waits as code: a counter's word, the sites of a rectangle and of a list, the waiter's running register."""

from __future__ import annotations

from collections.abc import Iterator

from pavane.ir.program import Rect
from pavane.native.index import Scope, emit_index
from pavane.native.layout import CELL, REGISTER, Layout
from pavane.native.sync import emit_wait
from pavane.native.text import Code


def each_site(code: Code, rect: Rect, scope: Scope, layout: Layout) -> Iterator[str]:
    """The numbers of a rectangle's sites, as loops around what the caller writes next."""
    x0, x1, y0, y1 = (emit_index(code, q, scope) for q in (rect.x0, rect.x1, rect.y0, rect.y1))
    with code.loop(y1, start=y0) as y, code.loop(x1, start=x0) as x:
        yield code.add(code.mul(y, layout.width), x)


def place_on_list(code: Code, sites: tuple[tuple[int, int], ...], site: str, layout: Layout) -> str:
    """Which of a list's sites the one of that number is: its coordinate along the list."""
    found = "0"
    for place, (x, y) in enumerate(sites):
        here = code.value(f"icmp eq i64 {site}, {y * layout.width + x}")
        found = code.value(f"select i1 {here}, i64 {place}, i64 {found}")
    return found


def counter_cell(code: Code, base: str, number: int, site: str, layout: Layout) -> str:
    """The counter's word on a site."""
    return code.at(base, code.add(code.mul(site, CELL), str(number * layout.sites * CELL)))


def emit_counter_wait(code: Code, cell: str, n: int, spins: str) -> None:
    """Consume n further posts against the running register, which is never reset."""
    register = code.at(cell, str(REGISTER))
    target = code.value(f"add i32 {code.load('i32', register, 4)}, {n}")
    code.store("i32", target, register, 4)
    emit_wait(code, cell, target, spins)
