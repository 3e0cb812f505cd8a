"""What the documents say exists: files, commands with their options, decisions in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from pavane.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(pavane .+?)(?:\s{2,}#.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(pavane [a-z][^`]*)`")
PATH = re.compile(r"`((?:src|tests|docs|bench)/[A-Za-z0-9_./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands() -> list[str]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        found += [match for block in blocks for match in COMMAND.findall(block)]
        found += [match for match in INLINE.findall(text) if match.count(" ") > 1 and "FILE" not in match]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("command", commands())
def test_a_command_has_the_options_that_a_page_gives_it(command):
    words = shlex.split(command, comments=True)
    group = typer.main.get_command(app)
    with group.make_context("pavane", words[1:2]) as context:
        chosen = group.get_command(context, words[1])
        assert chosen is not None, command
        chosen.make_context(words[1], words[2:], parent=context).close()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_glossary_is_sorted_and_says_each_word_once():
    rows = re.findall(r"^\| ([a-zA-Z]+(?: [a-z]+)*) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = [row for row in rows if row != "word"]
    assert words == sorted(set(words), key=str.lower)
    assert len(words) > 30


def test_decisions_are_numbered_without_a_gap():
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04d}" for number in range(1, len(pages) + 1)]
    for number, page in enumerate(pages, 1):
        assert page.read_text(encoding="utf-8").startswith(f"# {number}. ")
