"""The simulator: any accepted program on its target, in numbers and in time."""

from __future__ import annotations

from pavane.sim.engine import Event
from pavane.sim.faults import Deadlock, PoisonRead, ProtocolFault, SimulationFault, UnwrittenOutput
from pavane.sim.result import ChannelTraffic, EngineTime, SimResult, Waited
from pavane.sim.simulator import Simulator, simulate
from pavane.sim.trace import perfetto_json

__all__ = [
    "ChannelTraffic",
    "Deadlock",
    "EngineTime",
    "Event",
    "PoisonRead",
    "ProtocolFault",
    "SimResult",
    "SimulationFault",
    "Simulator",
    "UnwrittenOutput",
    "Waited",
    "perfetto_json",
    "simulate",
]
