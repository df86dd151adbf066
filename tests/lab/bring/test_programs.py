"""A program of the machine where it is of use, else one that is unpacked, else a word about what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive
from tests.lab.bring.conftest import Mirror
from tests.lab.bring.programs import Program, Programs, compiles, judges_units_offline, tells_its_version
from tests.lab.bring.shortage import ShortageError
from tests.lab.bring.wrappers import program_in, with_its_templates

HELLO = Program("hello", (("hello",),))


class Checkout:
    """A .programs folder, and a folder of programs that the machine has, before all others."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / ".programs"
        self.machine = root / "machine"
        self.machine.mkdir()
        self.ours = self.root / "usr" / "bin" / "hello"
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.ours.parent), str(self.machine), os.environ["PATH"]]))

    def provide(self, *wanted: Program, strict: bool = False) -> int:
        return Programs(self.root, Archive(self.root / "apt"), wanted or (HELLO,)).provide(strict=strict)

    def install(self, text: str, name: str = "hello") -> None:
        program = self.machine / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    def says(self) -> str:
        return subprocess.run([self.ours], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


def test_what_the_machine_lacks_is_unpacked_and_found(checkout: Checkout) -> None:
    assert checkout.provide() == 0
    assert shutil.which("hello") == str(checkout.ours)
    assert checkout.says() == "hello 1.0"


def test_a_second_time_fetches_nothing_and_says_nothing(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.provide()
    capsys.readouterr()
    monkeypatch.setenv("APT_CONFIG", "/nonexistent")
    assert checkout.provide() == 0
    assert capsys.readouterr() == ("", "")


def test_the_machines_own_is_used_also_where_it_came_later(checkout: Checkout) -> None:
    checkout.provide()
    checkout.install("echo mine")
    checkout.provide()
    assert not checkout.ours.exists()
    assert shutil.which("hello") == str(checkout.machine / "hello")


def test_the_machines_own_under_another_name_will_do(checkout: Checkout) -> None:
    checkout.install("echo mine", "hallo")
    checkout.provide(Program("hello", (("hello",),), other_name="hallo"))
    assert not checkout.ours.exists()


def test_an_unusable_program_of_the_machine_is_skipped(checkout: Checkout) -> None:
    checkout.install("exit 3")
    checkout.provide()
    assert shutil.which("hello") == str(checkout.ours)
    assert checkout.says() == "hello 1.0"


def test_a_tree_that_is_damaged_is_fetched_again(checkout: Checkout) -> None:
    checkout.provide()
    (checkout.root / "unpacked" / "hello" / "usr" / "bin" / "hello").write_text("#!/bin/false\n")
    checkout.provide()
    assert checkout.says() == "hello 1.0"


def test_a_set_up_that_was_interrupted_continues(checkout: Checkout) -> None:
    checkout.provide()
    checkout.ours.unlink()
    (checkout.root / "unpacked" / "hello").rename(checkout.root / "unpacked" / "hello.part")
    assert checkout.provide() == 0
    assert checkout.says() == "hello 1.0"


def test_the_first_set_of_packages_that_there_is_is_taken(checkout: Checkout) -> None:
    assert checkout.provide(Program("hello", (("newer",), ("hello",)))) == 0
    assert checkout.says() == "hello 1.0"


def test_what_is_not_available_is_named_with_the_reason_and_fails_where_it_must(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Program("absent", (("nosuch",),))
    assert checkout.provide(absent, HELLO) == 0
    told = capsys.readouterr().err
    assert "missing: absent" in told
    assert "nosuch" in told
    assert checkout.says() == "hello 1.0"
    assert checkout.provide(absent, strict=True) == 1


def test_one_that_was_fetched_but_is_unusable_is_neither_left_to_be_found_nor_fetched_again(
    mirror: Mirror, checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.add("broken", "1", files={"usr/bin/broken": "#!/bin/sh\necho why >&2; exit 7\n"})
    broken = Program("broken", (("broken",),))
    assert checkout.provide(broken, strict=True) == 1
    assert "exit status 7: why" in capsys.readouterr().err
    assert shutil.which("broken") is None
    checkout.provide(broken)
    assert "reading" not in capsys.readouterr().out


def test_a_compiler_without_headers_is_unusable(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    compiler.chmod(0o755)
    assert tells_its_version(compiler) == ""
    assert compiles(compiler) != ""


def test_a_systemd_that_cannot_check_units_offline_is_unusable(tmp_path: Path) -> None:
    analyze = tmp_path / "systemd-analyze"
    analyze.write_text("#!/bin/sh\n[ \"$1\" = verify ] || { echo 'unrecognized option --offline' >&2; exit 1; }\n")
    analyze.chmod(0o755)
    assert "unrecognized" in judges_units_offline(analyze)


def test_a_program_that_cannot_be_started_is_unusable(tmp_path: Path) -> None:
    assert tells_its_version(tmp_path / "nothing") != ""


def test_the_alertmanager_finds_its_templates_wherever_it_is(tmp_path: Path) -> None:
    tree, ours = tmp_path / "my tree", tmp_path / "usr" / "bin" / "prometheus-alertmanager"
    program = tree / "usr" / "bin" / "prometheus-alertmanager"
    templates = tree / "usr" / "share" / "prometheus" / "alertmanager"
    for each in (program.parent, templates, ours.parent):
        each.mkdir(parents=True)
    (templates / "default.tmpl").write_text("found")
    text = "#!/bin/sh\ncat /usr/share/prometheus/alertmanager/default.tmpl\n"
    program.write_text(text)
    with_its_templates(tree, ours)
    assert subprocess.run([ours], capture_output=True, text=True, check=True).stdout == "found"
    assert len(program.with_suffix(".relocated").read_text()) == len(text)


def test_a_tree_without_its_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ShortageError, match="holds no hello"):
        HELLO.publish(tmp_path, tmp_path / "hello")


def test_a_program_for_administrators_is_found_as_well(tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "hello").touch()
    assert program_in(tmp_path, "hello") == Path("sbin/hello")
