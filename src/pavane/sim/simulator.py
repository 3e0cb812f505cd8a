"""Simulate a PERSISTENT or VERIFIED program on its target: numbers, time, or both.

`functional` moves real numbers in the program's numerics; `timing` counts cycles from the descriptor. With both,
every transfer and op happens at its cycle; functional alone lets a transfer complete at its fence, as late as is
allowed; timing alone moves no data, gives the same cycles (time never depends on a value) and is fast. `trace` keeps
every engine's events (trace.py writes them).

Refuses with LaunchReject what a launch must not start with. A program that no checker would accept ends in a
SimulationFault (faults.py).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial

import numpy as np

from pavane.ir.program import (
    SITE_X,
    SITE_Y,
    Carry,
    Instance,
    Process,
    Program,
    Rect,
    Run,
    Shape,
    Step,
    Tensor,
    Worker,
)
from pavane.ir.walk import leaves, named, operands, symbol_domain
from pavane.reject import ArgumentReject, LaunchReject
from pavane.sim.engine import Agent, Place, Site, run_to_end
from pavane.sim.faults import ProtocolFault
from pavane.sim.launch import (
    as_stored,
    check_fill,
    check_indices,
    check_program,
    check_shared,
    check_symbols,
    check_transitions,
    greatest_extents,
    present_extents,
)
from pavane.sim.process import Compiled, Handler, compile_process
from pavane.sim.result import SimResult, channel_traffic, engine_times, summed, wait_table
from pavane.sim.section import FormalState, Section, operand_types, pitches
from pavane.sim.state import Machine
from pavane.sim.steps import bind
from pavane.sim.tensors import TensorStore, raw_bytes
from pavane.sim.turns import turn_steps
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.fidelity import buffer_bits

Arrays = Mapping[str, np.ndarray]
Steps = Generator[int, None, None]


def simulate(
    program: Program,
    target: SpatialTarget,
    *,
    tensors: Arrays | None = None,
    symbols: Mapping[str, int] | None = None,
    epochs: int = 1,
    functional: bool = True,
    timing: bool = True,
    trace: bool = False,
) -> SimResult:
    """Launch a program `epochs` times with the same symbols. `tensors`: WEIGHTs, INPUTs, and STATE to begin with."""
    if epochs < 1:
        raise ArgumentReject("a simulation has at least one epoch", needed=str(epochs))
    given = dict(tensors or {})
    inputs = {t.name: given.pop(t.name) for t in program.tensors if t.role == "INPUT" and t.name in given}
    simulator = Simulator(program, target, given, functional=functional, timing=timing, trace=trace)
    return summed([simulator.launch(symbols or {}, inputs) for _ in range(epochs)])


class Simulator:
    """A program resident on its chip: STATE, counters and weights live from launch to launch.

    `share`: another program's simulator whose weights and state this one works on, in place of tensors of its own; what
    is sharded stands where it stands. What has a copy on every site each program puts there when its turn comes.
    """

    def __init__(
        self,
        program: Program,
        target: SpatialTarget,
        tensors: Arrays | None = None,
        *,
        functional: bool = True,
        timing: bool = True,
        trace: bool = False,
        share: Simulator | None = None,
    ) -> None:
        check_program(program, target)
        if trace and not timing:
            raise ArgumentReject("a trace needs timing")
        self.program = program
        self._machine = Machine(program, target, functional, timing, trace)
        self._engines = {engine.name: engine for engine in target.engines}
        self._compiled: dict[tuple[str, str], Compiled] = {}
        self._bound: dict[tuple[object, ...], list[Handler]] = {}  # of this launch
        self._unfenced: list[str] = []
        self._broken = False
        self._operand_types = {shape.name: operand_types(shape) for shape in program.shapes}
        self._operand_bits = {shape.name: buffer_bits(shape) for shape in program.shapes}
        self._frontiers = {t.name: 0 for t in program.tensors if t.transition is not None}
        self._is_shared = share is not None
        if share is not None:
            self._share(share, tensors or {})
        theirs = share._tensors if share is not None else None
        self._tensors: TensorStore | None = TensorStore(program, theirs) if functional else None
        if functional and share is None:
            self._fill_resident(tensors or {})

    def _share(self, other: Simulator, tensors: Arrays) -> None:
        if tensors:
            raise LaunchReject("a program that shares its weights takes none", needed=", ".join(sorted(tensors)))
        if self._machine.functional != other._machine.functional:
            raise ArgumentReject("two simulators that share weights are both functional or neither is")
        check_shared(self.program, other.program)
        self._machine.share(other._machine)
        self._frontiers = other._frontiers
        other._is_shared = True

    def _fill_resident(self, tensors: Arrays) -> None:
        for tensor in self.program.tensors:
            if tensor.role == "WEIGHT" and tensor.name not in tensors:
                raise LaunchReject(f"weight {tensor.name!r} was not given")
        for name, array in tensors.items():
            tensor = self._known(name, ("WEIGHT", "STATE"))
            self._fill(tensor, array, greatest_extents(self.program, tensor))
            if name in self._frontiers:
                self._frontiers[name] = array.shape[0]

    def _known(self, name: str, roles: tuple[str, ...]) -> Tensor:
        for tensor in self.program.tensors:
            if tensor.name == name and tensor.role in roles:
                return tensor
        raise LaunchReject(f"the program has no tensor {name!r} of role {' or '.join(roles)}")

    def _fill(self, tensor: Tensor, array: np.ndarray, extents: tuple[int, ...]) -> None:
        whole = as_stored(tensor, array, extents)
        check_fill(tensor, whole)
        check_indices(self.program, tensor.name, whole)
        if tensor.home == "sharded":
            self._machine.shards(tensor).fill(raw_bytes(whole))
            return
        self._tensors.fill(tensor.name, whole)  # type: ignore[union-attr]
        if tensor.home == "sites" and tensor.offset >= 0:
            self._machine.fill_copies(tensor, raw_bytes(whole))

    # --- a launch ------------------------------------------------------------------------------------------

    def launch(self, symbols: Mapping[str, int], inputs: Arrays | None = None) -> SimResult:
        """One epoch: every worker's body once. After a SimulationFault the simulator is of no more use."""
        if self._broken:
            raise ArgumentReject("an earlier launch of this simulator ended in a fault", remedy="make a new Simulator")
        check_symbols(self.program, symbols)
        self._take_inputs(symbols, inputs or {})
        machine = self._machine
        self._broken = True
        agents = self._start(symbols)
        run_to_end(machine.clock, agents)
        self._check_end()
        self._advance(symbols)
        cycles = max((a.ended_at or 0 for a in agents), default=0)
        outputs = self._read("OUTPUT", symbols)
        self._broken = False
        return SimResult(
            outputs=outputs,
            state=self._read("STATE", symbols),
            cycles=cycles,
            epoch_cycles=(cycles,),
            engines=engine_times(agents),
            channels=channel_traffic(machine),
            sent_bytes=machine.links.sent_bytes,
            own_shard_bytes=machine.links.own_shard_bytes,
            other_shard_bytes=machine.links.other_shard_bytes,
            waits=wait_table(agents),
            events=tuple(sorted(machine.events, key=lambda e: (e.start, e.site, e.engine))) if machine.events else (),
        )

    def _take_inputs(self, symbols: Mapping[str, int], inputs: Arrays) -> None:
        if self._tensors is None:
            return
        check_transitions(self.program, symbols, self._frontiers)
        self._tensors.forget(("SCRATCH", "OUTPUT"))
        self._machine.forget_copies()
        if self._is_shared:
            self._place_copies(self._tensors)
        for tensor in self.program.tensors:
            if tensor.role == "INPUT" and tensor.name not in inputs:
                raise LaunchReject(f"input {tensor.name!r} was not given")
        for name, array in inputs.items():
            tensor = self._known(name, ("INPUT",))
            self._fill(tensor, array, present_extents(tensor, symbols))

    def _place_copies(self, store: TensorStore) -> None:
        """The other program may have worked where this one's copies of weights stand."""
        for tensor in self.program.tensors:
            if tensor.role == "WEIGHT" and tensor.home == "sites" and tensor.offset >= 0:
                self._machine.fill_copies(tensor, store.raw(tensor.name))

    def _start(self, symbols: Mapping[str, int]) -> list[Agent]:
        machine = self._machine
        machine.restart()
        self._bound.clear()
        sections = [self._section(instance, symbols) for instance in self.program.instances]
        begin = machine.target.launch.cycles if machine.timed else 0
        agents = []
        for index, worker in enumerate(self.program.workers):
            for site in _sites(worker.rect):
                agent = Agent(machine.clock, worker.name, index, site, self._engines[worker.engine], machine.events)
                agent.begin(self._body(worker, agent, sections, symbols), begin)
                agents.append(agent)
        return agents

    def _section(self, instance: Instance, symbols: Mapping[str, int]) -> Section:
        shape = named(self.program.shapes, instance.shape)
        tensors = {b.formal: named(self.program.tensors, b.tensor) for b in instance.bindings}
        formals = {}
        for formal in shape.formals:
            tensor = tensors[formal.name]
            extents = tuple(extent.evaluate(symbols) for extent in formal.shape)
            store = self._tensors if tensor.home != "sharded" else None
            laid_out = store is not None and tensor.home == "sites" and tensor.offset >= 0
            sharded = self._tensors is not None and tensor.home == "sharded"
            formals[formal.name] = FormalState(
                name=formal.name,
                dtype=formal.dtype,
                base=max(0, tensor.offset) if tensor.home == "dram" else 0,
                pitches=pitches(extents, formal.dtype),
                interleave_bytes=tensor.interleave_bytes,
                on_sites=tensor.home == "sites",
                copy_at=partial(self._machine.copy, tensor, formal, extents) if laid_out else None,
                shard_bytes=tensor.shard_bytes,
                shards=self._machine.shards(tensor) if sharded else None,
                region=store.view(tensor.name, formal, symbols) if store is not None else None,
                writable=_writable_bytes(tensor, symbols),
            )
        name = instance.name or instance.shape
        types, bits = self._operand_types[shape.name], self._operand_bits[shape.name]
        return Section(self._machine, shape, name, formals, types, bits)

    def _body(self, worker: Worker, agent: Agent, sections: list[Section], symbols: Mapping[str, int]) -> Steps:
        """The generator of a worker on a site: its turns, one after the other."""
        values = {**symbols, **_coordinates(agent.site, worker.rect)}
        for number, turn in enumerate(worker.body):
            if isinstance(turn, Run):
                yield from self._run(sections[turn.instance], turn.process, agent, symbols)
            else:
                place = Place(agent, worker.name, number, turn)
                yield from turn_steps(self._machine, place, turn, values)

    def _run(self, section: Section, name: str, agent: Agent, symbols: Mapping[str, int]) -> Steps:
        process = named(section.shape.processes, name)
        compiled = self._compile(section.shape, process)
        if self._machine.functional:
            for carry in _carries(section.shape, process):
                self._machine.carry(agent.site, section.shape, carry).fresh = True
        values = {**symbols, **_place_in(section.shape, process, agent.site)}
        agent.section = section.name
        handlers = self._handlers(section, agent, name, compiled.steps)
        yield from compiled.start(handlers, *(values[v] for v in compiled.variables))
        agent.section = ""
        if agent.transfers:
            place = f"process {name} on {agent.engine.name} of site {agent.site} ended with {len(agent.transfers)}"
            self._unfenced.append(f"{place}, section {section.name}")
            agent.transfers.clear()

    def _handlers(self, section: Section, agent: Agent, process: str, steps: tuple[Step, ...]) -> list[Handler]:
        """The same again for another instance, where only time matters and that is the same."""
        if self._machine.functional:
            return bind(section, agent, process, steps)
        key = (agent.worker_index, agent.site, section.shape.name, process, section.layout)
        if key not in self._bound:
            self._bound[key] = bind(section, agent, process, steps)
        return self._bound[key]

    def _compile(self, shape: Shape, process: Process) -> Compiled:
        key = (shape.name, process.name)
        if key not in self._compiled:
            domain = symbol_domain(self.program)
            self._compiled[key] = compile_process(shape, process, domain, self._machine.functional)
        return self._compiled[key]

    # --- its end -------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        if self._unfenced:
            raise ProtocolFault("transfers that no fence awaited", terms=self._unfenced)
        self._machine.settle_counters()
        left = self._machine.busy_fifos()
        if left:
            raise ProtocolFault("a launch ended with slots that nobody took", terms=left)

    def _advance(self, symbols: Mapping[str, int]) -> None:
        for tensor in self.program.tensors:
            if tensor.transition is not None:
                transition = tensor.transition
                self._frontiers[tensor.name] = transition.row.evaluate(symbols) + transition.rows.evaluate(symbols)

    def _read(self, role: str, symbols: Mapping[str, int]) -> dict[str, np.ndarray]:
        if self._tensors is None:
            return {}
        tensors = (t for t in self.program.tensors if t.role == role)
        return {t.name: self._read_one(self._tensors, t, symbols) for t in tensors}

    def _read_one(self, store: TensorStore, tensor: Tensor, symbols: Mapping[str, int]) -> np.ndarray:
        if tensor.home == "sharded":
            return self._machine.shards(tensor).whole(present_extents(tensor, symbols))
        return store.read(tensor.name, symbols, whole=tensor.role == "OUTPUT")


def _sites(rect: Rect) -> list[Site]:
    return [(x, y) for y in range(rect.y0.const, rect.y1.const) for x in range(rect.x0.const, rect.x1.const)]


def _coordinates(site: Site, rect: Rect) -> dict[str, int]:
    """A site's place inside a rectangle."""
    return {SITE_X: site[0] - rect.x0.const, SITE_Y: site[1] - rect.y0.const}


def _place_in(shape: Shape, process: Process, site: Site) -> dict[str, int]:
    """A site's place inside a process's rectangle, which may be of the line of the shape's own sites."""
    return _coordinates((shape.sites.index(site), 0) if shape.sites else site, process.rect)


def _carries(shape: Shape, process: Process) -> list[Carry]:
    """The carries that a process touches."""
    touched: dict[str, None] = {}
    for _, step in leaves(process.body):
        if hasattr(step, "carry"):
            touched[step.carry] = None
        if hasattr(step, "op"):
            touched.update(dict.fromkeys((step.op.dst.name, *operands(step.op))))
    return [c for c in shape.carries if c.name in touched]


def _writable_bytes(tensor: Tensor, symbols: Mapping[str, int]) -> tuple[int, int] | None:
    if tensor.transition is None:
        return None
    shape = tuple(extent.evaluate(symbols) for extent in tensor.shape)
    pitch = pitches(shape, tensor.dtype)[0]
    first = tensor.transition.row.evaluate(symbols)
    return first * pitch, (first + tensor.transition.rows.evaluate(symbols)) * pitch
