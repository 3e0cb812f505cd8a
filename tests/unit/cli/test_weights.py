"""`--weights`: what a user stores a model's matrices as, by the command line."""

from __future__ import annotations

from typer.testing import CliRunner

from pavane.artefact import read_artefact
from pavane.cli.main import app


def invoked(*arguments: str):
    result = CliRunner().invoke(app, list(arguments))
    assert "Traceback" not in result.output
    return result


def test_a_program_of_block_floats_says_so(place):
    out = place / "a.pavane"
    arguments = ("compile", str(place / "tiny.gguf"), "-o", str(out), "--context", "64")
    assert invoked(*arguments, "-t", "wormhole_n150", "--weights", "bfp8").exit_code == 0
    artefact = read_artefact(out)
    assert artefact.model is not None
    assert artefact.model.weights == "bfp8"
    assert {t.dtype for t in artefact.program.tensors if t.role == "WEIGHT"} == {"bfp8", "f32"}
    assert invoked("check", str(out)).exit_code == 0
    assert invoked("simulate", str(out)).exit_code == 0


def test_a_chip_without_them_names_what_it_takes(place):
    out = place / "refused.pavane"
    arguments = ("compile", str(place / "tiny.gguf"), "-o", str(out), "--context", "64")
    refused = invoked(*arguments, "-t", "sn40l", "--weights", "bfp4")
    assert refused.exit_code == 6
    said = " ".join(refused.stderr.split())
    assert "no engine of sn40l takes bfp4" in said
    assert "f32, f16, bf16, i8, i32, q8_0" in said
    assert not out.exists()


def test_a_model_talks_in_block_floats(place):
    """Programs of different storage are kept apart in the cache."""
    arguments = ("run", str(place / "tiny.gguf"), "--prompt", "hello the", "--max-tokens", "6", "--context", "64")
    texts, made = [], []
    for weights in ("bfp8", "bfp4", "bfp8"):
        texts.append(invoked(*arguments, "--weights", weights).stdout)
        made.append(len(list((place / "cache" / "programs").iterdir())))
    assert texts[0] == texts[2]
    assert 0 < made[0] < made[1] == made[2]
    programs = [read_artefact(path) for path in (place / "cache" / "programs").iterdir()]
    kinds = {(p.model.part, p.model.weights) for p in programs if p.model}
    assert kinds == {(part, weights) for part in ("decode", "prompt") for weights in ("bfp8", "bfp4")}
