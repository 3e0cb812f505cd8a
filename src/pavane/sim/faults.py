"""Why a simulation cannot go on: the program did what no accepted program does.

    SpatialReject
    +-- SimulationFault      the base; `terms` hold the details
        +-- Deadlock          every process that is left waits: one term a process, with what it waits for
        +-- PoisonRead        a value was used that nothing had written (yet), or outside its buffer
        +-- ProtocolFault     steps in an order without meaning: a push without a reserve, a send nobody has a slot for
        +-- UnwrittenOutput   a launch ended and an element of an output was never written

A program that the checker accepted raises none of them; they are what tests of broken programs look for.
"""

from __future__ import annotations

from pavane.reject import SpatialReject


class SimulationFault(SpatialReject):
    code, exit_code = "simulation", 8


class Deadlock(SimulationFault):
    code = "deadlock"


class PoisonRead(SimulationFault):
    code = "poison-read"


class ProtocolFault(SimulationFault):
    code = "protocol"


class UnwrittenOutput(SimulationFault):
    code = "unwritten-output"
