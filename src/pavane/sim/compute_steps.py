"""Compute and Init: an engine's cycles, those of packing in full sync, and the bandwidth of operands read in place."""

from __future__ import annotations

from collections.abc import Callable

from pavane.ir.program import Compute, Generic, Init, MatmulTiles
from pavane.ir.types import row_bytes
from pavane.ir.walk import named, operands
from pavane.reject import NoEngine
from pavane.sim import effects
from pavane.sim.channels import Channels
from pavane.sim.process import Handler
from pavane.sim.section import Context, buffer_of, product_mode, product_types
from pavane.sim.state import FifoState
from pavane.sim.timing import generic_cycles, product_cycles


def bind_compute(context: Context, step: Compute) -> Handler:
    agent, machine, op = context.agent, context.machine, step.op
    cost = _with_packing(context, op.dst.name, _op_cycles(context, step)) if context.machine.timed else None
    aliases = [context.fifo(name) for name in operands(op) if _is_alias(context, name)]
    clock, channels = machine.clock, machine.channels
    kind, name = type(op).__name__, context.label("->", op.dst.name)
    product = isinstance(op, MatmulTiles)

    def compute(rows: int, cols: int, last: int) -> int:
        if cost is None or not rows or not cols or (product and not last):
            return 0
        cycles = cost(rows, cols, last)
        agent.worked(kind, name, cycles)
        end = clock.now + cycles
        for fifo in aliases:
            end = max(end, _paid(fifo, channels, clock.now))
        agent.waited("memory in place", clock.now + cycles, end - clock.now - cycles)
        return end - clock.now

    if not machine.functional:
        return compute
    effect = effects.product(context, op) if isinstance(op, MatmulTiles) else effects.generic(context, op)

    def compute_data(env: dict[str, int], rows: int, cols: int, last: int) -> int:
        if rows and cols and (last or not product):
            effect(env, rows, cols, last)
        return compute(rows, cols, last)

    return compute_data


def _op_cycles(context: Context, step: Compute) -> Callable[[int, int, int], int]:
    engine, op = context.agent.engine, step.op
    if isinstance(op, Generic):
        return generic_cycles(op.expr, engine)
    mode = product_mode(context.section, op, engine)
    if mode is None:
        a, b = product_types(context.section, op)
        raise NoEngine(f"engine {engine.name} has no product of {a} by {b}", where=str(context.place))
    return product_cycles(mode)


def _with_packing(
    context: Context, buffer: str, compute: Callable[[int, int, int], int]
) -> Callable[[int, int, int], int]:
    """In full sync the result leaves the registers before the engine goes on."""
    process = named(context.section.shape.processes, context.place.process)
    if process.registers == "HALF":
        return compute
    engine, dtype = context.agent.engine, buffer_of(context.section.shape, buffer).dtype
    if process.registers not in engine.windows:
        raise NoEngine(f"engine {engine.name} has no full sync", where=str(context.place))
    return lambda rows, cols, last: compute(rows, cols, last) + engine.pack_cycles(rows * row_bytes(dtype, cols))


def _is_alias(context: Context, name: str) -> bool:
    return getattr(buffer_of(context.section.shape, name), "kind", "") == "ALIAS"


def _paid(fifo: FifoState, channels: Channels, now: int) -> int:
    """Stream what no op has read yet of an alias slot; when the last byte has passed."""
    slot = fifo.head if fifo.held_by is not None else fifo.tail
    end = now
    for requests in fifo.unpaid[slot]:
        end = max(end, channels.stream(now, requests))
    fifo.unpaid[slot] = []
    return end


def bind_init(context: Context, step: Init) -> Handler:
    carry, agent = named(context.section.shape.carries, step.carry), context.agent
    rate = max(1, agent.engine.generic_elements_per_cycle)
    cost = _with_packing(context, step.carry, lambda rows, cols, _: -(-rows * cols // rate))
    cycles = cost(carry.rows, carry.cols, 1) if context.machine.timed else 0
    name = context.label("init", step.carry)

    def init() -> int:
        return agent.worked("init", name, cycles)

    if not context.machine.functional:
        return init
    effect = effects.init(context, step)

    def init_data(_env: dict[str, int]) -> int:
        effect()
        return init()

    return init_data
