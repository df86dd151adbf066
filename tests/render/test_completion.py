"""Completion, judged by the shells themselves: bash completes, and zsh and fish read what is written for them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent.cli import make_parser
from agent.commands.render.completion import SHELLS, script_of
from agent.lib.command_tree import ArgumentKind, tree_of
from agent.lib.commandline import Parser

ROOT = Path(__file__).resolve().parents[2]
FILES = {"bash": "coldplate.bash", "zsh": "_coldplate", "fish": "coldplate.fish"}


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: NOTHING reads the completion for it here")
    return found


@pytest.mark.parametrize("name", SHELLS)
def test_what_is_installed_is_what_the_command_line_says(name: str) -> None:
    committed = (ROOT / "packaging/completion" / FILES[name]).read_text()
    assert committed == script_of(name)(tree_of(make_parser())), "write it anew with: make generate"


TRIED = [
    (["coldplate", "onc"], ["once"]),
    (["coldplate", "rules", ""], ["check", "test", "backtest"]),
    (["coldplate", "--v"], ["--version"]),
    (["coldplate", "once", "--path.s"], ["--path.sysfs"]),
    (["coldplate", "once", "--format", ""], ["text", "openmetrics", "json"]),
    (["coldplate", "once", "--format", "=", "j"], ["json"]),
    (["coldplate", "once", "--format", "="], ["text", "openmetrics", "json"]),
    (["coldplate", "once", "--log.level", "debug", "--form"], ["--format"]),
    (["coldplate", "render", "completion", "f"], ["fish"]),
    (["coldplate", "rules", "check", "PLACE/s"], ["PLACE/some file.yml"]),
    (["coldplate", "render", "rules", "--out", "PLACE/"], ["PLACE/folder"]),
    (["coldplate", "doctor", "--url", "h"], []),
    (["coldplate", "nothing", "onc"], ["once"]),
]


def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "some file.yml").touch()
    script = [f"source '{ROOT}/packaging/completion/coldplate.bash'"]
    for words, _ in TRIED:
        listed = " ".join(f"'{word.replace('PLACE', str(tmp_path))}'" for word in words)
        script.append(
            f"COMP_WORDS=({listed}) COMP_CWORD={len(words) - 1} COMPREPLY=(); _coldplate; "
            "printf '%s\\t' \"${COMPREPLY[@]}\"; echo"
        )
    done = subprocess.run(
        [shell("bash"), "--norc", "-c", "\n".join(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr == ""
    told = [line.replace(str(tmp_path), "PLACE").rstrip("\t").split("\t") for line in done.stdout.splitlines()]
    assert told == [sorted_as_written or [""] for _, sorted_as_written in TRIED]


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_a_shell_reads_what_is_written_for_it(name: str) -> None:
    done = subprocess.run(
        [shell(name), "-n", str(ROOT / "packaging/completion" / FILES[name])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes() -> None:
    script = (
        f"source {ROOT}/packaging/completion/coldplate.fish; complete -C 'coldplate rules '; complete -C 'coldplate r'"
    )
    done = subprocess.run([shell("fish"), "-N", "-c", script], capture_output=True, text=True, check=False)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["check", "test", "render", "rules", "run"]


def test_a_command_line_is_the_same_data_whatever_argparse_prints() -> None:
    parser = Parser(
        prog="tool", description="Does things.", examples=(("tool x", "one"),), exit_statuses={1: "b", 0: "a"}
    )
    parser.add_argument("--into", type=Path, metavar="DIR", default=Path("/x"), help="where to (default %(default)s)")
    parser.add_argument("--level", choices=("low", "high"), action="append", help="how much")
    parser.add_argument("files", nargs="*", type=Path, help="what")
    tree = tree_of(parser)
    _, into, level, files = tree.arguments
    assert (into.takes, into.help, into.metavar) == (ArgumentKind.DIRECTORY, "where to (default /x)", "DIR")
    assert (level.words, level.metavar, level.repeats) == (("low", "high"), "LEVEL", True)
    assert (files.flags, files.takes, files.required, files.repeats) == ((), ArgumentKind.FILE, False, True)
    assert tree.exit_statuses == ((0, "a"), (1, "b"))
