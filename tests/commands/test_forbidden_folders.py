"""A folder that the user may not enter gets one line and the documented exit status, from every command that writes."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import cli
from tests import warm

VERSION_3 = 0x20080522
"""Of capset(2): two words for each set of capabilities."""


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "forbidden"
    folder.mkdir(mode=0o000)
    yield folder
    folder.chmod(0o700)


def without_capabilities(arguments: list[str]) -> tuple[int, str]:
    """Run a command as root runs it without the right to ignore permissions; status and standard error."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0:
        assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        return cli.main(arguments), error.getvalue()


@pytest.mark.parametrize("entry", ["site.yml", "*.yml", "*/site.yml"])
def test_rule_files_in_a_forbidden_folder_are_refused_as_that(entry: str, forbidden: Path, tmp_path: Path) -> None:
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"rules:\n  files: ['{forbidden}/{entry}']\n")
    words = ["run", "--config.check", "--config.file", str(config)]
    ended, error = warm.call(without_capabilities, words)
    assert (ended, len(error.splitlines())) == (2, 1), error
    assert error.startswith(f"coldplate: {config}:2: rules.files: ") and "Permission denied" in error


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("record --duration 1s -o {0}/x", 1),
        ("record -o {0}/x -- true", 125),
        ("render dashboards --output {0}/d", 2),
        ("render rules --output {0}/d", 2),
        ("check --learn {0}/y --scenario idle --timeout 20s", 3),
        ("run --config.check --config.file {1}", 2),
    ],
)
def test_a_command_that_may_not_write_ends_with_one_line(
    words: str, status: int, forbidden: Path, tmp_path: Path
) -> None:
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"state_dir: {forbidden}/state\n")
    ended, error = warm.call(without_capabilities, words.format(forbidden, config).split())
    assert (ended, len(error.splitlines())) == (status, 1), error
    assert "forbidden" in error and error.startswith("coldplate")
