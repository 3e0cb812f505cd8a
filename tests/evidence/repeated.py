"""One section that an epoch does several times, without boundaries: instances of one shape share FIFOs and counters.

Every instance has tensors of its own; a careless hand lets two of them write one.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pavane.ir.program import Instance, Program
from tests.evidence.blocks import block_floats
from tests.evidence.caches import gather
from tests.evidence.hand import Case, Hand, signed
from tests.evidence.pipelines import alias_pipeline, fifo_pipeline
from tests.evidence.products import multicast, product, row_windows
from tests.evidence.sums import sums
from tests.evidence.unusual import unusual

ONE_SECTION: tuple[Callable[[Hand], Case], ...] = (
    fifo_pipeline, alias_pipeline, product, multicast, row_windows, sums, gather, unusual, block_floats,
)  # fmt: skip


def repeated(hand: Hand) -> Case:
    program, target = hand.pick(ONE_SECTION)(hand)
    while len(program.instances) != 1:
        program, target = hand.pick(ONE_SECTION)(hand)
    times = hand.pick((2, 2, 3, 5))
    return several(program, times, hand.pick(range(1, times)) if hand.slip() else -1), target


def several(program: Program, times: int, onto: int = -1) -> Program:
    """The one section `times` times. Instance `onto` writes what the one before it writes."""
    instances = tuple(_instance(program, number, number - (number == onto)) for number in range(times))
    bound = {binding.tensor for instance in instances for binding in instance.bindings}
    copies = (replace(t, name=f"{t.name}_{number}") for number in range(times) for t in program.tensors)
    workers = tuple(
        replace(w, body=tuple(replace(run, instance=number) for number in range(times) for run in w.body))
        for w in program.workers
    )
    tensors = tuple(tensor for tensor in copies if tensor.name in bound)
    return signed(replace(program, tensors=tensors, instances=instances, workers=workers))


def _instance(program: Program, number: int, writes: int) -> Instance:
    """On the tensors of that number, and the outputs of another."""
    outputs = {tensor.name for tensor in program.tensors if tensor.role == "OUTPUT"}
    (instance,) = program.instances
    bindings = (replace(b, tensor=f"{b.tensor}_{writes if b.tensor in outputs else number}") for b in instance.bindings)
    return replace(instance, name=f"n{number}", bindings=tuple(bindings))
