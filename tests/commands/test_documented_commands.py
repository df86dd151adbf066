"""Every command of README and of the first hour runs as it is printed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.commands.documented import LASTS, NEEDS, ROOT, Terminal, blocks, own_network
from tests.lab.bring.archive import Archive
from tests.lab.bring.environment import Environment
from tests.servers import need

README = ROOT / "README.md"
FIRST_HOUR = ROOT / "docs" / "first-hour.md"
NOT_RUN = {README: {"root": 2}, FIRST_HOUR: {"container": 1}}
"""Blocks that the suite cannot run, by what they need; `make test-packages` installs packages and the single file."""


@pytest.mark.parametrize("document", [README, FIRST_HOUR], ids=lambda path: path.name)
def test_a_block_that_is_not_run_says_what_it_needs(document: Path) -> None:
    found = blocks(document)
    assert {each.needs for each in found if each.needs} <= set(NEEDS)
    assert Counter(each.needs for each in found if each.needs) == NOT_RUN[document]
    assert all(
        each.needs or each.mark in ("", LASTS, "ends with 0 or 1") or each.mark.startswith("shows: ") for each in found
    )
    assert "```sh" in document.read_text() and len(found) == document.read_text().count("```sh\n")


@pytest.mark.parametrize("document", [README, FIRST_HOUR], ids=lambda path: path.name)
def test_every_command_runs_as_printed(document: Path, tmp_path: Path) -> None:
    for program in ("prometheus", "prometheus-alertmanager", "amtool", "promtool"):
        if not (ROOT / ".programs" / "usr" / "bin" / program).exists():
            need(f"{program} in .programs")
    # `make` must find nothing to install: it would change the environment below the tests that run now.
    note = ROOT / ".venv" / "complete.json"
    if not note.exists():
        need("the .venv that make makes")
    found = json.loads(note.read_bytes())
    wanted = Environment(ROOT, Archive(ROOT / ".programs" / "apt")).made_from(found["extras"])
    assert found["project"] == wanted, ".venv is not of this pyproject.toml: run `make .venv/dev.stamp`"
    shutil.rmtree(ROOT / ".programs" / "first-hour", ignore_errors=True)
    with own_network() as enter:
        if enter is None:
            pytest.skip("no network of its own is allowed here, and the documents' ports may be in use")
        terminal = Terminal(enter, tmp_path)
        try:
            for block in blocks(document):
                if not block.needs:
                    terminal.run(block)
        finally:
            terminal.close()
