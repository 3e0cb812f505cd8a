"""The tables in docs/ that are generated say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pavane import reject
from pavane.pipeline import JOINING, PASS_ORDER
from pavane.report.tables import generated_tables, main, refusals_table

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", sorted(generated_tables()))
def test_the_table_is_up_to_date(name):
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == generated_tables()[name], "run `python -m pavane.report.tables docs`"


def test_every_refusal_is_in_the_table():
    classes = {value for value in vars(reject).values() if isinstance(value, type) and issubclass(value, Exception)}
    for kind in classes - {reject.SpatialReject}:
        assert f"| `{kind.code}` | {kind.exit_code} | `{kind.__name__}` |" in refusals_table()


def test_every_refusal_has_a_code_of_its_own_and_a_reason():
    rows = [line.split(" | ") for line in refusals_table().splitlines() if line.startswith("| `")]
    assert len({row[0] for row in rows}) == len(rows)
    assert [row for row in rows if not row[3].strip(" |")] == []


def test_every_pass_is_in_the_table():
    text = generated_tables()["passes.md"]
    found = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert found == [entry.name for entry in (*PASS_ORDER, *JOINING)]


def test_tables_are_written(tmp_path):
    main(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == generated_tables()
