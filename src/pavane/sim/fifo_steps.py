"""Reserve, Push, Front, Pop: who owns which slot, who waits for one. A reserved slot forgets what it held."""

from __future__ import annotations

from pavane.ir.program import Front, Pop, Push, Reserve
from pavane.sim.process import Handler
from pavane.sim.section import Context, misused


def bind_reserve(context: Context, step: Reserve) -> Handler:
    fifo, agent, place = context.fifo(step.fifo), context.agent, context.place
    label = context.label("a free slot of", step.fifo)

    def reserve() -> int:
        if fifo.reserved_by is not None:
            raise misused(place, "a slot is reserved already")
        if not fifo.free:
            fifo.reserve_waiter = agent
            return agent.park(
                place, label, lambda: f"waits for a free slot, {len(fifo.ready)} of {fifo.depth} are pushed"
            )
        fifo.free -= 1
        fifo.reserved_by = agent
        fifo.unpaid[fifo.tail] = []
        return 0

    if not context.machine.functional:
        return reserve

    def reserve_and_forget(_env: dict[str, int]) -> int:
        delay = reserve()
        if not delay:
            buffer = fifo.slots[fifo.tail]
            buffer.fresh, buffer.pieces, buffer.origin = True, [], None
        return delay

    return reserve_and_forget


def bind_push(context: Context, step: Push) -> Handler:
    fifo, agent, place, machine = context.fifo(step.fifo), context.agent, context.place, context.machine
    handover = machine.target.fifos.handover_cycles if machine.timed else 0

    def push(*_: dict[str, int]) -> int:
        if fifo.reserved_by is not agent:
            raise misused(place, "the process holds no reserved slot")
        time = machine.clock.now + handover
        fifo.reserved_by = None
        fifo.tail = (fifo.tail + 1) % fifo.depth
        fifo.ready.append(time)
        if fifo.front_waiter is not None:
            waiter, fifo.front_waiter = fifo.front_waiter, None
            waiter.wake(time)
        return 0

    return push


def bind_front(context: Context, step: Front) -> Handler:
    fifo, agent, place, clock = context.fifo(step.fifo), context.agent, context.place, context.machine.clock
    label = context.label("a pushed slot of", step.fifo)

    def front(*_: dict[str, int]) -> int:
        if not fifo.ready:
            fifo.front_waiter = agent
            return agent.park(place, label, lambda: f"waits for a pushed slot, {fifo.free} of {fifo.depth} are free")
        if fifo.held_by is not None:
            raise misused(place, "a slot is held already")
        delay = fifo.ready[0] - clock.now
        if delay > 0:
            agent.waited(label, clock.now, delay)
            return delay
        fifo.held_by = agent
        return 0

    return front


def bind_pop(context: Context, step: Pop) -> Handler:
    fifo, agent, place, clock = context.fifo(step.fifo), context.agent, context.place, context.machine.clock

    def pop(*_: dict[str, int]) -> int:
        if fifo.held_by is not agent:
            raise misused(place, "the process holds no slot in front")
        fifo.held_by = None
        fifo.ready.popleft()
        fifo.head = (fifo.head + 1) % fifo.depth
        fifo.free += 1
        if fifo.reserve_waiter is not None:
            waiter, fifo.reserve_waiter = fifo.reserve_waiter, None
            waiter.wake(clock.now)
        return 0

    return pop
