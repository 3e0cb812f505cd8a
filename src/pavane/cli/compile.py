"""`pavane compile`: a model or an op, through every pass, to one `.pavane` file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pavane.artefact import Artefact, ModelInfo, WeightReference, weight_reference, write_artefact
from pavane.cli.console import Watch, say, watching
from pavane.cli.context import ContextOption
from pavane.cli.contracts import DEFAULT_CONTRACT, DEFAULT_WEIGHTS, WEIGHTS_HELP, as_contract, as_weights
from pavane.cli.outputs import require_place
from pavane.cli.passes_seen import PassesSeen
from pavane.reject import ArgumentReject

if TYPE_CHECKING:
    from pavane.api import Source
    from pavane.ir.types import Contract, StoredWeights
    from pavane.pipeline import PassEvent


def compile_(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the program goes.", readable=False)],
    model_name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A name from `pavane models`, or the path of a GGUF file.")
    ] = None,
    op: Annotated[str | None, typer.Option(help="One op instead of a model: matmul:M,K,N[:dtype].")] = None,
    target: Annotated[str, typer.Option("--target", "-t", help="A chip by name, or its TOML file.")] = "host",
    cores: Annotated[int | None, typer.Option(help="Cores of the target `host`.")] = None,
    part: Annotated[str, typer.Option(help="Of a model: decode (a token) or prompt (a block).")] = "decode",
    contract: Annotated[
        str, typer.Option(help="float, or int8 (activations rounded in blocks of 32).")
    ] = DEFAULT_CONTRACT,
    weights: Annotated[str, typer.Option(help=WEIGHTS_HELP)] = DEFAULT_WEIGHTS,
    context: ContextOption = None,
    dump: Annotated[
        Path | None, typer.Option(help="Write a numbered file a pass into this directory.", readable=False)
    ] = None,
) -> None:
    """Compile a model or an op into one certified program."""
    from pavane import api
    from pavane.cli.sources import chip

    if (model_name is None) == (op is None):
        raise ArgumentReject("a model or --op, one of both", remedy="pavane compile --op matmul:64,64,64 -o a.pavane")
    if op is not None and (part, contract, weights, context) != ("decode", DEFAULT_CONTRACT, DEFAULT_WEIGHTS, None):
        raise ArgumentReject(
            "--part, --contract, --weights and --context are a model's", where=f"--op {op}", remedy="leave them out"
        )
    if part not in ("decode", "prompt"):
        raise ArgumentReject(f"unknown part {part!r}", needed="decode or prompt")
    wanted, stored, descriptor = as_contract(contract), as_weights(weights), chip(target, cores)
    require_place(output)
    seen = PassesSeen(dump)
    start = time.perf_counter()
    with watching() as watch:
        source, reference, info = _source(model_name, op, part, wanted, context, stored, watch)

        def observe(event: PassEvent) -> None:
            seen.see(event)
            watch.passes(event)

        program = api.compile(source, descriptor, observer=observe)
    seconds = time.perf_counter() - start
    write_artefact(output, Artefact(program, descriptor, reference, seen.records(), info))
    from pavane.report.certificate import certificate_lines

    for line in (*certificate_lines(program), *seen.summary()):
        say(line)
    say(f"{output}: {output.stat().st_size:,} bytes, {seconds:.2f} s")


def _source(
    model_name: str | None,
    op: str | None,
    part: str,
    contract: Contract,
    context: int | None,
    stored: StoredWeights,
    watch: Watch,
) -> tuple[Source, WeightReference | None, ModelInfo | None]:
    from pavane import api
    from pavane.cli.sources import model

    if op is not None:
        return api.op(op), None, None
    loaded = model(model_name, contract, context, watch, stored)
    source = loaded.decode() if part == "decode" else loaded.prompt()
    weights = weight_reference(loaded.deployed.path, loaded.deployed.digest, loaded.weight_names())
    return source, weights, ModelInfo(loaded.config.name, part, loaded.contract, loaded.context, stored)
