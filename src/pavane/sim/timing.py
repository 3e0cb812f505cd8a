"""Cycles, from the descriptor's figures only: engines (here), DRAM channels (channels.py), network links (links.py).

    product      ceil(rows / m) * ceil(cols / n) * ceil(k / kk) steps of the engine's mode, `cycles` each
    Generic      operators (exp and its like `function_cycles`; a copy 1) x elements / generic_elements_per_cycle
    load         the engine is busy request_cycles a request; then that request is with its channels, which stream the
                 bytes of one after the other in order of arrival, to the site beside a channel at bytes_per_cycle, to
                 others at far_bytes_per_cycle; from the first request on all together no faster than the site's link
                 (not where the target is `alias`); latency_cycles after all that
    store        the same; no latency where the target is `alias` (an engine's own write needs no answer)
    on the sites a load of a site's own copy takes its link only, start_cycles after its requests; a store is sent to
                 all sites (`send`), once, or where the network has no multicast once a site
    sharded      requests as of DRAM, at least one a site that has bytes of the window, and a message each: of the own
                 site as its own copy; of another, once the request has gone there (a load) or before the answer is
                 back (a store), over the links and through the two sites' ports
    alias load   nothing; the first op that reads the slot lasts at least until the channels have streamed the window
    send         the engine is busy start_cycles; each link of the path (multicast: tree) is held while bytes pass, by
                 one message after the other in the order in which they leave their sites
    post         the engine is busy post_cycles; it arrives hop_cycles a hop later

Bytes are interleaved over the channels by address, a tensor's own `interleave_bytes` or a page (without pages
`dram.alignment_bytes`) at a time; a tensor starts at channel 0, SCRATCH at its offset in the arena. Where DRAM has
pages each page of each row is a request, elsewhere any window is one.
"""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.expr import Expr, Fn, Reduce, children
from pavane.targets.descriptor import Engine, MatrixMode

FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")


def product_cycles(mode: MatrixMode) -> Callable[[int, int, int], int]:
    """(rows, cols, k) -> cycles."""
    m, kk, n = mode.tile
    return lambda rows, cols, k: -(-rows // m) * -(-cols // n) * -(-k // kk) * mode.cycles


def generic_cycles(expr: Expr, engine: Engine) -> Callable[[int, int, int], int]:
    """(rows, cols, extent of the reduction) -> cycles."""
    inside = next((e for e in _nodes(expr) if isinstance(e, Reduce)), None)
    turns = 1 + _weight(inside.body, engine) if inside is not None else 0
    once = _weight(expr, engine) - (_weight(inside.body, engine) if inside is not None else 0)
    rate = max(1, engine.generic_elements_per_cycle)
    if not turns:
        once = max(1, once)
    return lambda rows, cols, extent: -(-rows * cols * (once + turns * extent) // rate)


def _nodes(expr: Expr) -> list[Expr]:
    return [expr, *(node for child in children(expr) for node in _nodes(child))]


def _weight(expr: Expr, engine: Engine) -> int:
    """Operators of an expression, a function counting as many as it costs."""
    return sum((engine.function_cycles if e.op in FUNCTIONS else 1) for e in _nodes(expr) if isinstance(e, Fn))
