"""Post and Wait, of a section's own counters and (post_handler, wait_handler) of the program's."""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.program import Counter, Post, Wait
from pavane.ir.walk import named
from pavane.sim.engine import Agent, Place, Site
from pavane.sim.process import Handler
from pavane.sim.section import Context, misused, site_lists
from pavane.sim.state import CounterState, Machine

Sinks = list[tuple[Site, CounterState]]


def bind_post(context: Context, step: Post) -> Handler:
    counter = named(context.section.shape.counters, step.counter)
    machine, shape, sites = context.machine, context.section.shape, site_lists()

    def sinks(rect: tuple[int, ...]) -> Sinks:
        return [(site, machine.counter(site, shape.name, counter)) for site in sites(rect)]

    return post_handler(context.agent, machine, step.n, step.counter, sinks)


def post_handler(
    agent: Agent, machine: Machine, n: int, name: str, sinks: Callable[[tuple[int, ...]], Sinks]
) -> Handler:
    """Post n to the counters that `sinks` gives for a rectangle; each arrives after its hops."""
    clock = machine.clock
    post_cycles, hop_cycles = machine.target.counters.post_cycles, machine.target.noc.hop_cycles

    def post(*arguments: int) -> int:
        rect = arguments[-4:]
        if not machine.timed:
            for _, counter in sinks(rect):
                counter.post(n, clock.now, clock)
            return 0
        here_x, here_y = agent.site
        leaves = clock.now + post_cycles
        for (x, y), counter in sinks(rect):
            counter.post(n, leaves + hop_cycles * (abs(x - here_x) + abs(y - here_y)), clock)
        agent.worked("post", name, post_cycles)
        return post_cycles

    return post


def bind_wait(context: Context, step: Wait) -> Handler:
    counter = named(context.section.shape.counters, step.counter)
    state = context.machine.counter(context.agent.site, context.section.shape.name, counter)
    return wait_handler(context.place, counter, state, step.n, context.label("counter", step.counter))


def wait_handler(place: Place, counter: Counter, state: CounterState, n: int, label: str) -> Handler:
    agent = place.agent

    def needs() -> str:
        state.settle(agent.clock.now)
        have = f"value {state.value}, register {state.registers.get(agent.worker_index, -state.ahead)}"
        return f"waits for {n} further post{'s' if n > 1 else ''} of counter {counter.name} ({have}, {state.bits} bits)"

    def wait(*_: dict[str, int]) -> int:
        state.settle(agent.clock.now)
        if state.consume(agent.worker_index, n):
            return 0
        if state.waiter is not None and state.waiter is not agent:
            raise misused(place, f"counter {counter.name} has two waiting processes on one site")
        state.await_posts(agent, n, agent.clock)
        return agent.park(place, label, needs)

    return wait
