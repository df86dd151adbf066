"""Manual pages, judged by what formats them: groff through man, and mandoc."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent import cli
from agent.cli import make_parser
from agent.commands.render.manual_page import pages
from agent.lib.command_tree import tree_of
from agent.lib.commandline import Parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "packaging/man"


def formatter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: it formats NO manual page here")
    return found


def test_the_installed_pages_are_what_the_command_line_says() -> None:
    committed = {path.name: path.read_text() for path in PAGES.iterdir()}
    assert committed == pages(tree_of(make_parser())), "write them anew with: make generate"


def test_man_warns_of_nothing() -> None:
    command = [formatter("groff"), "-man", "-ww", "-Tutf8", "-z", *map(str, sorted(PAGES.glob("*.1")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_mandoc_warns_of_nothing_but_the_missing_date() -> None:
    command = [formatter("mandoc"), "-Tlint", "-Wwarning", *map(str, sorted(PAGES.glob("*.1")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line] == []


def test_a_person_reads_in_them_what_the_help_says() -> None:
    command = [formatter("groff"), "-man", "-Tascii", "-P-cbou", str(PAGES / "coldplate-rules.1")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = re.sub(r"\s+", " ", text)
    for said in (
        "coldplate-rules - check and test Prometheus rule files",
        "coldplate rules check [--help] [--profile PROFILE] FILE ...",
        "COLDPLATE RULES TEST",
        "1 at least one fails",
        "coldplate rules check site/*.yml",
    ):
        assert said in words


def test_no_text_is_taken_for_a_request() -> None:
    parser = Parser(
        prog="tool", description=".SH is no heading, and 'so is no file.", examples=((r"tool \n -x", "~ ^ `x`"),),
        exit_statuses={0: ".br"},
    )  # fmt: skip
    text = pages(tree_of(parser))["coldplate.1"]
    assert "\n\\&.SH is no heading, and \\(aqso is no file.\n" in text
    assert "\\fBtool \\en \\-x\\fR\n\\(ti \\(ha \\(gax\\(ga\n" in text
    assert "\n\\&.br\n" in text


def test_pages_are_written_into_a_directory_or_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "man", "--out", str(tmp_path / "man1")]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert sorted(names) == sorted(path.name for path in PAGES.iterdir())
    assert cli.main(["render", "man"]) == 0
    assert capsys.readouterr().out.count("\n.SH NAME\n") == len(names)
    (tmp_path / "file").touch()
    assert cli.main(["render", "man", "--out", str(tmp_path / "file")]) == 2
