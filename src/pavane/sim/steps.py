"""What each step does, as a handler bound to its agent: the contract of process.py.

The timed half (cycles, FIFOs, counters, transfers) is the same in all modes; in functional mode a handler also moves
data, through effects.py: a compute at once, a transfer when it completes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pavane.ir.program import (
    Compute,
    Fence,
    Front,
    Init,
    Load,
    Pop,
    Post,
    Push,
    Reserve,
    Send,
    Step,
    Store,
    Wait,
)
from pavane.sim import compute_steps, counter_steps, fifo_steps, transfer_steps
from pavane.sim.engine import Agent, Place
from pavane.sim.process import Handler
from pavane.sim.section import Context, Section


def bind(section: Section, agent: Agent, process: str, steps: tuple[Step, ...]) -> list[Handler]:
    """A handler for each step of a process."""
    return [
        _BINDERS[type(step)](Context(section, agent, Place(agent, process, number, step)), step)
        for number, step in enumerate(steps)
    ]


_BINDERS: dict[type, Callable[[Context, Any], Handler]] = {
    Reserve: fifo_steps.bind_reserve,
    Load: transfer_steps.bind_load,
    Push: fifo_steps.bind_push,
    Front: fifo_steps.bind_front,
    Compute: compute_steps.bind_compute,
    Pop: fifo_steps.bind_pop,
    Store: transfer_steps.bind_store,
    Send: transfer_steps.bind_send,
    Fence: transfer_steps.bind_fence,
    Post: counter_steps.bind_post,
    Wait: counter_steps.bind_wait,
    Init: compute_steps.bind_init,
}
