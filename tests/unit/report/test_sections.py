"""One way to name a section, and one refusal of a name that is none, whatever the command."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pavane.artefact import Artefact, PassRecord, write_artefact
from pavane.cli.main import app
from pavane.reject import ArgumentReject
from pavane.report.sections import named_section, unknown_section
from pavane.targets.load import load_target
from tests import examples
from tests.engines.sim_programs import product_chain

TOY = load_target("toy")
ONE = examples.matmul_multicast(TOY)


def of_places(*names: str):
    """A program with the section `matmul` at these places."""
    return replace(ONE, instances=tuple(replace(ONE.instances[0], name=name) for name in names))


def test_a_shape_comes_with_its_first_place_and_a_place_with_its_shape():
    program = of_places("layers.0.q", "layers.1.q")
    shape, first = program.shapes[0], program.instances[0]
    assert named_section(program, "matmul") == (shape, first)
    assert named_section(program, "layers.1.q") == (shape, program.instances[1])
    assert named_section(replace(program, instances=()), "matmul") == (shape, None)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("matmull", "try matmul"),
        ("MATMUL", "try matmul"),
        ("layers.9.q", "try layers.0.q or layers.1.q"),
        ("zzz", "name one of these"),
        ("", "name one of these"),
    ],
)
def test_what_comes_close_is_offered(asked, remedy):
    with pytest.raises(ArgumentReject) as caught:
        named_section(of_places("layers.0.q", "layers.1.q"), asked)
    refusal = caught.value
    assert (refusal.remedy, refusal.available, refusal.exit_code) == (remedy, "matmul", 2)
    assert refusal.what == f"no section is named {asked!r}"


def test_a_long_list_is_cut():
    refusal = unknown_section("x", "here", [f"section{number}" for number in range(40)])
    assert refusal.available.endswith("section15, and 24 more")


@pytest.fixture
def file(tmp_path):
    """Three places of one shape, which the passes saw at the first of them."""
    records = (PassRecord("product0", "tile", "1" * 64, 5, "+ a\n"), PassRecord("all", "verify", "2" * 64, 9, "+ b\n"))
    write_artefact(tmp_path / "a.pavane", Artefact(product_chain(TOY, 64, 3), TOY, passes=records))
    return str(tmp_path / "a.pavane")


def test_every_command_refuses_a_section_in_the_same_words(file):
    said = {CliRunner().invoke(app, [command, file, "product9"]).stderr for command in ("show", "explain")}
    assert said == {
        "pavane: no section is named 'product9'. at program local_product. needed the name of a section, available "
        "local_product. way out: try product0 or product1 or product2.\n"
    }
    with_pass = CliRunner().invoke(app, ["show", file, "product9", "--pass", "tile"]).stderr
    assert with_pass == (
        "pavane: no section is named 'product9'. at pass tile. needed the name of a section, available product0. "
        "way out: try product0.\n"
    )


@pytest.mark.parametrize("name", ["local_product", "product0", "product2"])
def test_any_name_of_a_section_is_understood(file, name):
    explained, shown, passed = (
        CliRunner().invoke(app, [*words]).stdout
        for words in (("explain", file, name), ("show", file, name), ("show", file, name, "--pass", "tile"))
    )
    assert explained.startswith("section local_product, 3 times in the program\n")
    assert shown.startswith("section local_product(")
    assert passed == f"product0, tile: {'1' * 16}, 5 cycles predicted\n+ a\n"


def test_what_was_done_to_all_sections_has_a_name_too(file):
    result = CliRunner().invoke(app, ["show", file, "all", "--pass", "verify"])
    assert result.stdout == f"all, verify: {'2' * 16}, 9 cycles predicted\n+ b\n"
