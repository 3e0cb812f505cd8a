"""What a launch may be given: symbols, inputs, indices, and the position of the state. Each fault is a LaunchReject."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pavane.ir.program import Program, Tensor, Transition
from pavane.ir.types import Floats, block_elements
from pavane.native.memory import view_shape
from pavane.reject import LaunchReject
from pavane.tensor_graph.blocks import decode_blocks
from pavane.tensor_graph.fills import broken_promise
from pavane.tensor_graph.operands import STORAGE


def check_symbols(program: Program, symbols: Mapping[str, int]) -> dict[str, int]:
    """The symbols in the program's order, each in its range."""
    declared = {s.name for s in program.symbols}
    faults = [f"{n} is missing" for n in sorted(declared - set(symbols))]
    faults += [f"{n} is not a symbol of the program" for n in sorted(set(symbols) - declared)]
    for symbol in program.symbols:
        value = symbols.get(symbol.name, symbol.lo)
        if not isinstance(value, int | np.integer):
            faults.append(f"{symbol.name} = {value!r} is no integer")
        elif not symbol.lo <= value <= symbol.hi:
            faults.append(f"{symbol.name} = {value} is outside [{symbol.lo}, {symbol.hi}]")
    if faults:
        raise LaunchReject(
            "the symbols of a launch are not right",
            where=program.name,
            terms=faults,
            remedy="give each symbol an integer of its range",
        )
    return {s.name: int(symbols[s.name]) for s in program.symbols}


def check_inputs(program: Program, symbols: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> None:
    """Every INPUT is there with its shape at these symbols, its dtype, and integers inside its fill."""
    declared = {t.name: t for t in program.tensors if t.role == "INPUT"}
    faults = [f"{n} is missing" for n in sorted(set(declared) - set(inputs))]
    faults += [f"{n} is not an input of the program" for n in sorted(set(inputs) - set(declared))]
    for name, tensor in declared.items():
        if name in inputs:
            faults += _input_faults(tensor, symbols, inputs[name])
    if faults:
        raise LaunchReject(
            "the inputs of a launch are not right",
            where=program.name,
            terms=faults,
            remedy="give each INPUT an array as its term says",
        )


def _input_faults(tensor: Tensor, symbols: Mapping[str, int], given: np.ndarray) -> list[str]:
    shape = view_shape(tensor.dtype, tuple(q.evaluate(symbols) for q in tensor.shape))
    wanted = STORAGE[tensor.dtype]
    if not isinstance(given, np.ndarray):
        return [f"{tensor.name} is no numpy array, needed {wanted.name} {list(shape)}"]
    if not given.dtype.isnative:
        return [f"{tensor.name} has its bytes in the other order, needed this machine's"]
    if given.dtype != wanted or given.shape != shape:
        return [f"{tensor.name} is {given.dtype.name} {list(given.shape)}, needed {wanted.name} {list(shape)}"]
    return fill_faults(tensor, np.asarray(given))  # of an array that hides some of its elements, all


def fill_faults(tensor: Tensor, given: np.ndarray) -> list[str]:
    """Values that are not what the tensor declares: proofs of exactness and of bounds rest on them."""
    if isinstance(tensor.fill, Floats):
        return []
    values = decode_blocks(given, tensor.dtype) if block_elements(tensor.dtype) > 1 else given
    broken = broken_promise(tensor.fill, values)
    return [f"{tensor.name} {broken}"] if broken else []


def state_transitions(program: Program) -> dict[Transition, tuple[str, ...]]:
    """The STATE tensors by their transition."""
    found: dict[Transition, tuple[str, ...]] = {}
    for tensor in program.tensors:
        if tensor.transition is not None:
            found[tensor.transition] = (*found.get(tensor.transition, ()), tensor.name)
    return found


def check_state(
    transitions: Mapping[Transition, tuple[str, ...]], symbols: Mapping[str, int], watermark: Mapping[str, int]
) -> dict[str, int]:
    """0 <= row <= the rows written so far, for every STATE tensor; returns what will be written after the launch."""
    after, faults = {}, []
    for transition, names in transitions.items():
        row, rows = transition.row.evaluate(symbols), transition.rows.evaluate(symbols)
        for name in names:
            written = watermark.get(name, 0)
            if not 0 <= row <= written:
                faults.append(f"{name} would be written from row {row}, and {written} rows are there")
            after[name] = row + rows
    if faults:
        raise LaunchReject(
            "a launch leaves rows of a state unwritten",
            terms=faults,
            remedy="start at 0, or where the last epoch ended",
        )
    return after
