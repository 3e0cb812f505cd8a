"""Hostile input: refused in words with the documented exit code, nothing replaced that is no file."""

from __future__ import annotations

import os
import re

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import pavane as pv
from pavane.artefact import artefact_bytes, parse_artefact, read_artefact
from pavane.atomic import replacing
from pavane.cli.main import app
from pavane.cli.simulate import symbol_values
from pavane.reject import ArgumentReject, FileReject
from tests.tiny_models import tiny_config, write_tiny_gguf
from tests.unit.cli.lines import refused


def test_a_device_or_fifo_is_never_replaced(tmp_path):
    fifo = tmp_path / "fifo.pavane"
    os.mkfifo(fifo)
    assert "regular file" in refused(3, "compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", str(fifo))
    assert fifo.is_fifo()
    assert "regular file" in refused(3, "check", str(fifo))


def test_a_link_is_followed(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize(
    "option", [("--part", "prompt"), ("--contract", "float"), ("--weights", "bfp8"), ("--context", "5")]
)
def test_options_of_a_model_are_refused_with_an_op(tmp_path, option):
    refused(2, "compile", "--op", "matmul:4,4,4", "-o", str(tmp_path / "a.pavane"), *option)


@pytest.mark.parametrize("prompt", ["\udcff", ""])
def test_a_prompt_that_is_no_text(prompt):
    refused(2, "run", "--prompt", prompt)


def test_an_empty_model_name_is_not_the_default_model():
    assert "no model and no file" in refused(2, "run", "", "--prompt", "hello")


def test_a_symbol_of_too_many_digits():
    with pytest.raises(ArgumentReject):
        symbol_values(pv.compile(pv.op("matmul:4,4,4"), "toy"), ["pos=" + "9" * 5000])


def test_answers_that_are_no_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    huge = write_tiny_gguf(
        tmp_path / "a.gguf",
        tiny_config(name="a\x1b\n" + "b" * 400),
        edit=lambda name, values: values * np.float32(1e30) if name.endswith("norm.weight") else values,
    )
    assert "no number" in refused(3, "run", str(huge), "--prompt", "hello")


def test_a_file_whose_chip_contradicts_itself(tmp_path):
    path = tmp_path / "a.pavane"
    assert CliRunner().invoke(app, ["compile", "--op", "matmul:4,4,4", "-t", "toy", "-o", str(path)]).exit_code == 0
    artefact = read_artefact(path)
    dram = msgspec.structs.replace(artefact.target.dram, channels=0)
    edited = msgspec.structs.replace(artefact, target=msgspec.structs.replace(artefact.target, dram=dram))
    with pytest.raises(FileReject, match=re.escape("dram.channels = 0")):
        parse_artefact(artefact_bytes(edited))


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.input("a", ("rows", 3)),
        lambda g: g.input("a", 3),
        lambda g: g.input("a", (2.5, 3)),
        lambda g: g.input("a", (1 << 62, 3)),
        lambda g: g.input("a", (1 << 30, 1 << 30)),
        lambda g: g.input("a", (1,) * 9),
        lambda g: g.input("a", (pv.Graph().symbol("n", 1, 4), 3)),
        lambda g: g.input("", (2, 3)),
        lambda g: g.input("a\n", (2, 3)),
        lambda g: g.input("a", (2, 3), fill="junk"),
        lambda g: g.input("a", (2, 3), fill=pv.Const(float("nan"))),
        lambda g: g.input("a", (2, 3), fill=pv.Ints(0.5, 1.5)),
        lambda g: g.apply("add", g.input("a", (2, 3)), float("inf")),
        lambda g: g.apply("add", g.input("a", (2, 3)), "x"),
        lambda g: g.apply("exp", pv.Graph().input("a", (2, 3))),
        lambda g: g.matmul(3, g.weight("b", (3, 4))),
        lambda g: g.output("c", None),
        lambda g: g.symbol("r", 1, 4, 99),
        lambda g: (g.symbol("r", 1, 4), g.symbol("r", 1, 4)),
        lambda g: pv.compile(g),
        lambda g: pv.compile(pv.op("matmul:16777216,16777216,4"), "toy"),
    ],
)
def test_a_graph_is_refused_where_it_is_wrong(build):
    with pytest.raises(ArgumentReject):
        build(pv.Graph())


@pytest.mark.parametrize(
    "call",
    [
        lambda: pv.op(None),
        lambda: pv.gguf(None),
        lambda: pv.gguf("model.gguf", "FROB"),
        lambda: pv.Graph("g", contract="FROB"),
        lambda: pv.Graph(3),
        lambda: pv.as_target("host", 1.5),
        lambda: pv.as_target("host", "2"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(call):
    with pytest.raises(pv.SpatialReject) as caught:
        call()
    assert caught.value.exit_code == 2
