"""The manual pages and the completions of shells."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.cli import make_parser
from agent.lib.commandline import Parser
from tests.lab.generate.command_line import SCRIPTS, pages, script

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "packaging/man"


def formatter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: it formats NO manual page here")
    return found


def test_the_installed_pages_are_what_the_command_line_says() -> None:
    committed = {path.name: path.read_text() for path in PAGES.iterdir()}
    assert committed == pages(make_parser()), "run `make generate`"


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
        "coldplate-rules - check Prometheus rule files",
        "coldplate rules check [--help] [--profile PROFILE] FILE ...",
        "COLDPLATE RULES BACKTEST",
        "1 at least one is not",
        "coldplate rules check site/*.yml",
    ):
        assert said in words


def test_no_text_is_taken_for_a_request() -> None:
    parser = Parser(
        prog="tool",
        description=".SH is no heading, and 'so is no file.",
        examples=((r"tool \n -x", "~ ^ `x`"),),
        exit_statuses={0: ".br"},
    )
    text = pages(parser)["coldplate.1"]
    assert "\n\\&.SH is no heading, and \\(aqso is no file.\n" in text
    assert "\\fBtool \\en \\-x\\fR\n\\(ti \\(ha \\(gax\\(ga\n" in text
    assert "\n\\&.br\n" in text


def test_options_and_arguments_are_shown_with_defaults_and_how_often_they_may_come() -> None:
    parser = Parser(prog="tool", description="Does things.", examples=(), exit_statuses={1: "b", 0: "a"})
    parser.add_argument("--into", type=Path, metavar="DIR", default=Path("/x"), help="where to (default %(default)s)")
    parser.add_argument("--level", choices=("low", "high"), action="append", help="how much")
    parser.add_argument("files", nargs="*", type=Path, help="what")
    text = re.sub(r"\\f.|\\", "", pages(parser)["coldplate.1"])
    assert "[--into DIR]\n[--level LEVEL] ...\n[FILES ...]\n" in text
    assert "--into DIR\nwhere to (default /x)\n" in text
    assert text.index("\n0\na\n") < text.index("\n1\nb\n")


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: NOTHING reads the completion for it here")
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_installed_is_what_the_command_line_says(name: str) -> None:
    committed = (ROOT / "packaging/completion" / SCRIPTS[name]).read_text()
    assert committed == script(name), "run `make generate`"


TRIED = [
    (["coldplate", "onc"], ["once"]),
    (["coldplate", "rules", ""], ["check", "backtest"]),
    (["coldplate", "--v"], ["--version"]),
    (["coldplate", "once", "--path.s"], ["--path.sysfs"]),
    (["coldplate", "once", "--format", ""], ["text", "openmetrics", "json"]),
    (["coldplate", "once", "--log.level", "debug", "--form"], ["--format"]),
    (["coldplate", "rules", "check", "PLACE/s"], ["PLACE/some file.yml"]),
    (["coldplate", "render", "rules", "--output", "PLACE/"], ["PLACE/folder"]),
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
            f"COMP_WORDS=({listed}) COMP_CWORD={len(words) - 1} COMPREPLY=(); _shtab_coldplate; "
            "printf '%s\\t' \"${COMPREPLY[@]}\"; echo"
        )
    done = subprocess.run(
        [shell("bash"), "--norc", "-c", "\n".join(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr == ""
    told = [line.replace(str(tmp_path), "PLACE").rstrip("\t").split("\t") for line in done.stdout.splitlines()]
    assert told == [sorted_as_written or [""] for _, sorted_as_written in TRIED]


def test_zsh_reads_what_is_written_for_it() -> None:
    command = [shell("zsh"), "-n", str(ROOT / "packaging/completion" / SCRIPTS["zsh"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
