"""A worker's own turns: Wait and Post on the program's counters."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial

from pavane.ir.program import Post, Wait
from pavane.ir.walk import named
from pavane.sim.counter_steps import post, wait_handler
from pavane.sim.engine import Place
from pavane.sim.process import compile_turn
from pavane.sim.state import Machine

_WAIT, _POST = compile_turn(blocking=True), compile_turn(blocking=False)
_SCOPE = "program"


def turn_steps(
    machine: Machine, place: Place, turn: Wait | Post, values: Mapping[str, int]
) -> Generator[int, None, None]:
    """One turn of an agent; `values` of the symbols and of its site's place in the worker's rectangle."""
    counter, agent = named(machine.program.counters, turn.counter), place.agent
    if isinstance(turn, Wait):
        state = machine.counter(agent.site, _SCOPE, counter)
        return _WAIT([wait_handler(place, counter, state, turn.n, f"counter {counter.name}")])
    to = turn.to
    sinks = to.x0.evaluate(values), to.x1.evaluate(values), to.y0.evaluate(values), to.y1.evaluate(values)
    return _POST([partial(post, agent, machine, turn, machine.reached(agent.site, _SCOPE, counter, sinks))])
