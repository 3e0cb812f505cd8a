"""The verbs: what a user of the library calls. Everything raises SpatialReject and nothing else for what a user can
cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pavane.frontends.deploy import FORM, DeployedModel, deployment
from pavane.frontends.gguf import read_gguf
from pavane.frontends.progress import Progress
from pavane.ir.digest import digest
from pavane.ir.program import Program
from pavane.ir.types import CONTRACTS, Contract, DType, Fill, Ints, StoredWeights
from pavane.reject import ArgumentReject
from pavane.targets.check import check_target
from pavane.targets.descriptor import SpatialTarget
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig, DecoderWeights
from pavane.tensor_graph.graph import Graph

if TYPE_CHECKING:
    from pavane.pipeline import Observer
    from pavane.sim import SimResult
    from pavane.verify.check import Report

DEFAULT_CONTEXT = 2048


class Source(msgspec.Struct, frozen=True):
    """Something to compile: a name, and its TEMPLATE sections for a target.

    `beside`: the same of each program of its deployment, where there are several with the same weights and state.
    """

    name: str
    sections: Callable[[SpatialTarget], tuple[Program, ...]]
    beside: Callable[[SpatialTarget], tuple[tuple[Program, ...], ...]] = lambda target: ()


def compile(
    source: Source,
    target: str | Path | SpatialTarget = "host",
    cores: int | None = None,
    observer: Observer | None = None,
) -> Program:
    """Every pass, to one VERIFIED program. `cores` is for the target `host`."""
    from pavane.pipeline import compile_sections  # every pass: only where something is compiled

    if not isinstance(source, Source):
        raise ArgumentReject(
            f"cannot compile a {type(source).__name__}",
            remedy="give pv.op(text), pv.graph(graph) or pv.gguf(path).decode()",
        )
    chip = as_target(target, cores)
    return compile_sections(source.name, source.sections(chip), chip, observer, source.beside(chip))


def check(program: Program, target: str | Path | SpatialTarget = "host", cores: int | None = None) -> Report:
    """The independent checker: what it established, or a NotProven that names every broken obligation."""
    from pavane.verify.check import check as check_program

    return check_program(_program(program), as_target(target, cores))


def simulate(
    program: Program,
    target: str | Path | SpatialTarget = "host",
    *,
    tensors: Mapping[str, np.ndarray] | None = None,
    symbols: Mapping[str, int] | None = None,
    epochs: int = 1,
    functional: bool = True,
    timing: bool = True,
    trace: bool = False,
) -> SimResult:
    """Launch a program on its simulated chip: numbers (`functional`) and time (`timing`); see `pavane.sim.simulate`."""
    from pavane.sim import simulate as launch

    return launch(
        _program(program),
        as_target(target),
        tensors=tensors,
        symbols=symbols,
        epochs=epochs,
        functional=functional,
        timing=timing,
        trace=trace,
    )


def show(program: Program) -> str:
    """The program as people read it."""
    from pavane.ir.text import show as text_of

    return text_of(_program(program))


def _program(given: Program) -> Program:
    if not isinstance(given, Program):
        raise ArgumentReject(f"a {type(given).__name__} is not a program", remedy="give what pv.compile returns")
    return given


def as_target(target: str | Path | SpatialTarget, cores: int | None = None) -> SpatialTarget:
    """A descriptor itself, or by name or TOML file; free of contradictions."""
    return check_target(target) if isinstance(target, SpatialTarget) else load_target(target, cores)


# --- sources --------------------------------------------------------------------------------------------------------


def graph(authored: Graph) -> Source:
    """A graph authored by hand."""
    if not isinstance(authored, Graph):
        raise ArgumentReject(f"a {type(authored).__name__} is not a graph", remedy="build one with pv.Graph(name)")

    def sections(target: SpatialTarget) -> tuple[Program, ...]:
        from pavane.passes.from_tensor_op import from_tensor_op
        from pavane.tensor_graph.front import recognize_stages

        return tuple(from_tensor_op(op, target) for op in recognize_stages(authored))

    return Source(authored.name, sections)


def op(text: str) -> Source:
    """One op by its text: `matmul:M,K,N[:type]`, c[M, N] = a[M, K] . b[K, N].

    The type is f32 (default), f16 or bf16 for floats, i4 or i8 for integers of so many bits (exact where it is
    claimed).
    """
    if not isinstance(text, str):
        raise ArgumentReject(
            f"an op is written as text, not as a {type(text).__name__}", remedy="give 'matmul:33,65,31', say"
        )
    kind, _, rest = text.partition(":")
    sizes, _, type_name = rest.partition(":")
    if kind != "matmul" or type_name not in ("", *_OP_TYPES):
        raise ArgumentReject(
            f"no op is written {text!r}", remedy=f"matmul:M,K,N or matmul:M,K,N:TYPE with TYPE {_TYPES}"
        )
    m, k, n = _sizes(text, sizes)
    dtype, fill = _OP_TYPES[type_name or "f32"]
    authored = Graph(f"matmul_{m}x{k}x{n}")
    a = authored.input("a", (m, k), dtype, fill)
    b = authored.weight("b", (k, n), dtype, fill)
    authored.output("c", authored.matmul(a, b))
    return graph(authored)


_OP_TYPES: dict[str, tuple[DType, Fill | None]] = {
    "f32": ("f32", None),
    "f16": ("f16", None),
    "bf16": ("bf16", None),
    "i4": ("f32", Ints(-8, 7)),
    "i8": ("f32", Ints(-128, 127)),
}
_TYPES = ", ".join(_OP_TYPES)
_MOST_EXTENT = 1 << 24


def _sizes(text: str, sizes: str) -> tuple[int, int, int]:
    parts = sizes.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        raise ArgumentReject(f"the sizes of {text!r} are not three numbers", remedy="matmul:33,65,31, say")
    m, k, n = (int(part) for part in parts)
    if min(m, k, n) < 1 or max(m, k, n) > _MOST_EXTENT:
        raise ArgumentReject(f"a size of {text!r} is out of range", remedy=f"sizes from 1 to {_MOST_EXTENT}")
    return m, k, n


def decoder(
    config: DecoderConfig,
    weights: DecoderWeights,
    *,
    rows: int | str = 1,
    contract: Contract = "INT8_ACTIVATIONS",
    context: int = DEFAULT_CONTEXT,
    logits_every_row: bool = False,
    most_rows: int | None = None,
) -> Source:
    """One epoch of a decoder-only transformer: `rows` tokens from position `pos` on (`rows` = "rows": a symbol, from 1
    to `most_rows`: the most tokens of a block, by default as many as serve the target best).
    """
    kind = "decode" if rows == 1 else "prompt"

    def made(target: SpatialTarget, rows: int | str, every_row: bool) -> tuple[Program, ...]:
        from pavane.passes.from_qwen_ops import decoder_sections

        return decoder_sections(
            config,
            weights,
            target,
            rows=rows,
            contract=contract,
            context=context,
            logits_every_row=every_row,
            most_rows=most_rows,
        ).sections

    def beside(target: SpatialTarget) -> tuple[tuple[Program, ...], ...]:
        """Decode, and the prompt that needs most, whichever this is; none where memory is addressed in place."""
        return () if target.alias else (made(target, 1, False), made(target, "rows", True))

    return Source(f"{config.name}.{kind}", lambda target: made(target, rows, logits_every_row), beside)


class Gguf:
    """A GGUF model in its deployment form: `.decode()` and `.prompt()` are its two programs, over one set of weights
    and caches.
    """

    def __init__(self, deployed: DeployedModel, contract: Contract, context: int) -> None:
        self.deployed = deployed
        self.contract = contract
        self.context = context

    @property
    def config(self) -> DecoderConfig:
        return self.deployed.config

    def decode(self) -> Source:
        """One token an epoch."""
        return self._source(1)

    def prompt(self, logits_every_row: bool = False, most_rows: int | None = None) -> Source:
        """A block of tokens an epoch (see `decoder`); logits of the last one, or of every row."""
        return self._source("rows", logits_every_row, most_rows)

    def weights(self) -> dict[str, np.ndarray]:
        """Every WEIGHT tensor of both programs, as stored, and the rope frequencies."""
        frequencies = {name: np.array(values, np.float32) for name, values in self._frequencies().items()}
        return {name: self.deployed.array(name) for name in self.deployed.weights} | frequencies

    def weights_digest(self) -> str:
        """SHA-256 of what `weights` holds: the source file, the form that it is brought into, and the frequencies."""
        return digest([self.deployed.digest, FORM, self.deployed.stored, self._frequencies()])

    def weight_names(self) -> tuple[str, ...]:
        """The names of `weights`."""
        return (*self.deployed.weights, *self._frequencies())

    def _frequencies(self) -> dict[str, tuple[float, ...]]:
        tables = ("rope_inverse_frequencies", "local_rope_inverse_frequencies")
        return {table: values for table in tables if (values := getattr(self.config, table))}

    def _source(self, rows: int | str, logits_every_row: bool = False, most_rows: int | None = None) -> Source:
        stored = tuple((name, weight.shape, weight.dtype) for name, weight in self.deployed.weights.items())
        return decoder(
            self.config,
            DecoderWeights(stored),
            rows=rows,
            contract=self.contract,
            context=self.context,
            logits_every_row=logits_every_row,
            most_rows=most_rows,
        )


def gguf(
    path: str | Path,
    contract: Contract = "INT8_ACTIVATIONS",
    context: int | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    weights: StoredWeights = "q8_0",
) -> Gguf:
    """A model file in its deployment form: matrices stored as `weights`, Q8_0 (made once, kept in the user's cache
    directory) or block floats, for chips that take them.
    """
    if not isinstance(path, str | Path):
        raise ArgumentReject(
            f"a model file is named by its path, not by a {type(path).__name__}", remedy="give a str or a Path"
        )
    if contract not in CONTRACTS:
        raise ArgumentReject(f"no contract is named {contract!r}", remedy=" or ".join(CONTRACTS))
    deployed = deployment(read_gguf(path), cache_dir, progress, weights)
    most = deployed.config.context
    if context is not None and (type(context) is not int or not 1 <= context <= most):
        raise ArgumentReject(
            "the context is out of the model's range",
            where=str(path),
            needed=f"{context!r} positions",
            available=f"1 to {most}",
            remedy="give --context a value in that range",
        )
    return Gguf(deployed, contract, min(DEFAULT_CONTEXT, most) if context is None else context)
