"""Post and Wait, of a section's own counters and (`post`, `wait_handler`) of the program's."""

from __future__ import annotations

from pavane.ir.program import Counter, Post, Wait
from pavane.ir.walk import named
from pavane.sim.engine import Agent, Place
from pavane.sim.process import Handler
from pavane.sim.section import Context, misused
from pavane.sim.state import CounterState, Machine, Reached


def bind_post(context: Context, step: Post) -> Handler:
    counter = named(context.section.shape.counters, step.counter)
    machine, shape, agent = context.machine, context.section.shape, context.agent

    def post_step(*arguments: int) -> int:
        x0, x1, y0, y1 = arguments[-4:]
        return post(agent, machine, step, machine.reached(agent.site, shape.name, counter, (x0, x1, y0, y1)))

    return post_step


def post(agent: Agent, machine: Machine, step: Post, reached: Reached) -> int:
    """Post to counters, where it arrives after the way."""
    clock = machine.clock
    post_cycles = machine.target.counters.post_cycles if machine.timed else 0
    leaves = clock.now + post_cycles
    for way, counter in reached:
        counter.post(step.n, leaves + way, clock)
    return agent.worked("post", step.counter, post_cycles)


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
