"""From a model file to text and back: the commands that compile and run, on a small random decoder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pavane.api import DEFAULT_CONTEXT
from pavane.artefact import read_artefact, write_artefact
from pavane.cli.context import USUAL_POSITIONS
from pavane.cli.main import app
from pavane.pipeline import PASS_ORDER
from pavane.targets.load import load_target
from pavane.targets.prompt_rows import prompt_rows
from pavane.verify.check import OBLIGATIONS
from tests.unit.cli.lines import ENVIRONMENT, SCRIPT, done, refused


@pytest.fixture(scope="module")
def compiled(place):
    arguments = ["compile", str(place / "tiny.gguf"), "-t", "toy", "-o", str(place / "a.pavane"), "--context", "64"]
    result = CliRunner().invoke(app, [*arguments, "--dump", str(place / "dump")])
    assert result.exit_code == 0, result.output
    return place / "a.pavane"


def run(place: Path, *options: str) -> str:
    options = ("--prompt", "hello the", "--max-tokens", "6", "--context", "64", *options)
    return done("run", str(place / "tiny.gguf"), *options)


def test_a_compiled_model_is_one_small_file(compiled):
    artefact = read_artefact(compiled)
    assert artefact.program.phase == "VERIFIED"
    assert artefact.model is not None
    assert (artefact.model.part, artefact.model.context) == ("decode", 64)
    assert artefact.weights is not None
    assert "embedding" in artefact.weights.tensors
    assert len(artefact.weights.sha256) == 64
    assert compiled.stat().st_size < 500_000


def test_equal_calls_give_equal_bytes(compiled, place):
    done("compile", str(place / "tiny.gguf"), "-t", "toy", "-o", str(place / "b.pavane"), "--context", "64")
    assert (place / "b.pavane").read_bytes() == compiled.read_bytes()


def test_a_hash_seed_changes_nothing(place):
    for seed in ("1", "2"):
        file = str(place / f"seed{seed}.pavane")
        arguments = ["compile", "--op", "matmul:100,70,150", "-t", "toy", "-o", file]
        subprocess.run([*SCRIPT, *arguments], env={**ENVIRONMENT, "PYTHONHASHSEED": seed}, check=True)
    assert (place / "seed1.pavane").read_bytes() == (place / "seed2.pavane").read_bytes()


def test_every_pass_is_dumped_in_order(compiled, place):
    names = sorted(path.name for path in (place / "dump").iterdir())
    first = [name.rsplit("_", 1)[0] for name in names[:2]]
    assert names[0].startswith("0001_")
    assert len(first) == 2
    for entry in PASS_ORDER:
        assert any(name.endswith(f"_{entry.name}.txt") for name in names)
    head = (place / "dump" / names[0]).read_text().splitlines()
    assert [line.split()[0] for line in head[:3]] == ["digest", "predicted", "took"]


def test_the_checker_accepts_the_file(compiled):
    text = done("check", str(compiled))
    assert "accepted: tiny.decode" in text
    assert all(f"  {obligation} " in text for obligation in OBLIGATIONS)


def test_what_a_pass_changed_is_in_the_file(compiled):
    assert "plan" in done("show", str(compiled), "--pass", "tile")
    assert "bound by" in done("explain", str(compiled))


def test_it_runs_on_the_simulated_chip(compiled, place):
    text = done("simulate", str(compiled), "--trace", str(place / "t.json"), "-s", "pos=3")
    assert " cycles, " in text.splitlines()[0]
    assert "at pos=3" in text.splitlines()[0]
    assert (place / "t.json").read_text().startswith('{"traceEvents"')
    assert "pos 0..63" in refused(2, "simulate", str(compiled), "-s", "nothing=3")
    assert "pos 0..63" in refused(2, "simulate", str(compiled), "-s", "pos=64")


def test_a_file_with_the_certificate_of_another_program_is_refused(compiled, place):
    artefact = read_artefact(compiled)
    assert artefact.program.certificate is not None
    other = replace(artefact.program, certificate=replace(artefact.program.certificate, program="0" * 64))
    write_artefact(place / "other.pavane", replace(artefact, program=other))
    refused(7, "check", str(place / "other.pavane"))
    refused(7, "simulate", str(place / "other.pavane"))


def test_a_program_that_was_edited_is_refused(compiled, place):
    artefact = read_artefact(compiled)
    first, *others = artefact.program.shapes
    shallow = replace(first, fifos=tuple(replace(fifo, depth=fifo.depth + 1) for fifo in first.fifos))
    edited = replace(artefact.program, shapes=(shallow, *others))
    write_artefact(place / "edited.pavane", replace(artefact, program=edited))
    refused(7, "check", str(place / "edited.pavane"))


def test_a_model_talks_the_same_each_time(place):
    assert run(place) == run(place)
    drawn = ("--temperature", "1.5", "--top-k", "50", "--top-p", "0.9")
    assert run(place, *drawn, "--seed", "3") == run(place, *drawn, "--seed", "3")


def test_one_core_says_what_two_say(place):
    assert run(place, "--cores", "1") == run(place, "--cores", "2")


def test_run_says_what_it_did(place):
    arguments = ["run", str(place / "tiny.gguf"), "--prompt", "hello", "--max-tokens", "4", "--context", "64"]
    said = CliRunner().invoke(app, arguments).stderr
    assert "prompt " in said
    assert said.count("tokens/s") == 2
    assert said.count("certified: tiny.decode, ") == 1
    assert said.count("certified: tiny.prompt, ") == len(prompt_rows(load_target("host")))


@pytest.mark.parametrize(
    ("options", "notice"),
    [
        (("--max-tokens", "4"), "stopped at --max-tokens 4: the text may go on"),
        (("--max-tokens", "500"), "stopped at --context 64: its positions are full"),
    ],
)
def test_run_says_where_the_text_was_cut(place, options, notice):
    """The tiny model never ends by itself here."""
    arguments = ["run", str(place / "tiny.gguf"), "--prompt", "hello", "--context", "64", *options]
    result = CliRunner().invoke(app, arguments)
    assert notice in result.stderr.splitlines()
    assert "stopped" not in result.stdout


@pytest.mark.parametrize("command", ["run", "compile"])
def test_the_usual_context_is_in_the_help(command):
    assert USUAL_POSITIONS == DEFAULT_CONTEXT
    text = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    assert f"[default: ({USUAL_POSITIONS}, or the model's own where fewer)" in text


def test_bad_requests_are_refused(place):
    model = str(place / "tiny.gguf")
    assert "empty" in refused(2, "run", model)
    assert "longer than the context" in refused(2, "run", model, "--prompt", "hello " * 200, "--context", "64")
    assert "1 to 128" in refused(2, "run", model, "--prompt", "a", "--context", "4096")
    assert "no model and no file" in refused(2, "run", "gpt-9", "--prompt", "a")
    assert "temperature" in refused(2, "run", model, "--prompt", "a", "--temperature", "-1")
    assert "float or int8" in refused(2, "run", model, "--prompt", "a", "--contract", "int3")
    assert "one of both" in refused(2, "compile", "-o", str(place / "c.pavane"))
    assert not (place / "c.pavane").exists()


def test_a_damaged_model_is_refused(place):
    (place / "cut.gguf").write_bytes((place / "tiny.gguf").read_bytes()[:2000])
    (place / "magic.gguf").write_bytes(b"GGML" + (place / "tiny.gguf").read_bytes()[4:])
    assert str(place / "cut.gguf") in refused(3, "run", str(place / "cut.gguf"), "--prompt", "a")
    assert "magic" in refused(3, "run", str(place / "magic.gguf"), "--prompt", "a")


def test_a_place_that_cannot_be_written_is_refused(place):
    refused(3, "compile", "--op", "matmul:32,32,32", "-t", "toy", "-o", str(place / "tiny.gguf" / "a.pavane"))


def test_an_op_is_compiled_by_its_text(place):
    file = str(place / "op.pavane")
    done("compile", "--op", "matmul:100,70,150", "-t", "toy", "-o", file)
    assert "section matmul" in done("show", file)
    done("check", file)
    assert refused(2, "compile", "--op", "matmul:1,2", "-t", "toy", "-o", file)
    assert refused(2, "compile", "--op", "convolution:1,2,3", "-t", "toy", "-o", file)


def test_a_chip_that_is_too_small_is_refused(place):
    text = done("targets", "toy").replace("bytes = 65536", "bytes = 1024")
    (place / "small.toml").write_text(text, encoding="utf-8")
    said = refused(
        6, "compile", "--op", "matmul:64,64,64", "-t", str(place / "small.toml"), "-o", str(place / "d.pavane")
    )
    assert "1024" in said.replace(",", "")
    assert not (place / "d.pavane").exists()
