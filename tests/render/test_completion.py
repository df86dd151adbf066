"""Completion, judged by the shells themselves: bash completes, and zsh reads what is written for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.generate.command_line import SCRIPTS, script

ROOT = Path(__file__).resolve().parents[2]


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
    (["coldplate", "rules", ""], ["check", "test", "backtest"]),
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
