"""How bare machines are judged: from what pytest and make wrote there to a line of the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.bare import place
from tests.lab.bare.checkout import Checkout
from tests.lab.bare.command import cannot, main, tell_missing
from tests.lab.bare.machine import Machine, merged
from tests.lab.bare.outcome import Outcome, table
from tests.lab.bare.place import changes, surroundings, why_no_root_can_be_entered, within_limit
from tests.lab.bare.pythons import SUPPORTED, version
from tests.lab.bare.roots import README_NAMES, Roots
from tests.lab.bring.archive import Archive
from tests.lab.bring.shortage import ShortageError

README = Path(__file__).resolve().parents[3] / "README.md"
PASSED = '<testcase classname="a" name="one"/>'
FAILED = '<testcase classname="a" name="two"><failure message="assert 1 == 2">...</failure></testcase>'
BROKEN = '<testcase classname="a" name="three"><error message="failed on setup">...</error></testcase>'


def skipped(reason: str) -> str:
    return f'<testcase classname="a" name="four"><skipped message="{reason}"/></testcase>'


def outcome(folder: Path, *cases: str, touched: list[str] | None = None, **result: object) -> Outcome:
    told = {"python": "3.12.1", "run": "", "again": "", "status": 0, "seconds": 61.2, **result}
    (folder / "result.json").write_text(json.dumps(told))
    (folder / "junit.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    (folder / "test.log").write_text("the last words")
    return Outcome.read("trixie", "user", folder, touched or [])


def test_what_passed_is_good(tmp_path: Path) -> None:
    found = outcome(tmp_path, PASSED, PASSED)
    assert found.good
    assert (found.passed, found.failed, found.python) == (2, 0, "3.12.1")


def test_a_test_that_was_not_available_is_named_but_not_a_failure(tmp_path: Path) -> None:
    found = outcome(tmp_path, PASSED, skipped("this user may not read the kernel log: Operation not permitted"))
    assert found.good
    assert "left out: this user may not read the kernel log" in table([found])


@pytest.mark.parametrize(
    ("cases", "result", "word"),
    [
        ((PASSED, FAILED), {"status": 1}, "assert 1 == 2"),
        ((PASSED, BROKEN), {"status": 1}, "failed on setup"),
        ((PASSED, skipped("promtool is not installed")), {}, "promtool is not installed"),
        ((PASSED,), {"status": 2}, "the last words"),
        ((PASSED,), {"run": "make run ended"}, "make run ended"),
        ((PASSED,), {"again": "it fetched"}, "it fetched"),
        ((PASSED,), {"touched": ["/etc/passwd"]}, "/etc/passwd"),
        ((), {}, "no test passed"),
    ],
)
def test_what_went_wrong_is_named_and_fails(tmp_path: Path, cases: tuple[str, ...], result: dict, word: str) -> None:
    found = outcome(tmp_path, *cases, **result)
    assert not found.good
    assert word in found.words()
    assert "NOT good" in table([found])


def test_what_fails_beside_others_and_passes_alone_is_named_and_no_failure(tmp_path: Path) -> None:
    again = tmp_path / "alone.xml"
    again.write_text(f"<testsuites><testsuite>{FAILED.split('>')[0]}/></testsuite></testsuites>")
    found = outcome(tmp_path, PASSED, FAILED, status=1)
    assert found.good
    assert found.passed == 2
    assert "FAILED BESIDE OTHER TESTS, and passed alone: a::two" in found.words()
    again.write_text(f"<testsuites><testsuite>{FAILED}</testsuite></testsuites>")
    assert not outcome(tmp_path, PASSED, FAILED, status=1).good
    again.write_text(f"<testsuites><testsuite>{PASSED}</testsuite></testsuites>")
    assert not outcome(tmp_path, PASSED, FAILED, status=1).good, "another one passed"


def test_a_place_that_came_to_nothing_fails_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "place.log").write_text("cannot mount")
    found = Outcome.read("sid", "root", tmp_path, [])
    assert not found.good
    assert "cannot mount" in found.words()


def test_a_table_has_a_line_for_each_place(tmp_path: Path) -> None:
    lines = table([outcome(tmp_path, PASSED), outcome(tmp_path, PASSED, FAILED)]).splitlines()
    assert lines[0].split() == ["suite", "user", "Python", "passed", "failed", "skipped", "seconds"]
    assert lines[1].split() == ["trixie", "user", "3.12.1", "1", "0", "0", "61", "good"]
    assert lines[2].split() == ["trixie", "user", "3.12.1", "1", "1", "0", "61", "NOT", "good"]


def test_several_settings_of_pip_become_one_in_which_the_first_counts() -> None:
    site = "[global]\nindex-url = a\nfind-links =\n  one\n  two\n[install]\nuser = no\n"
    person = "[global]\nindex-url = b\ntimeout: 3\n"
    assert merged(site + "\n" + person) == (
        "[global]\nindex-url = a\nfind-links = \n one\n two\ntimeout = 3\n[install]\nuser = no\n"
    )


def test_folders_of_packages_and_certificates_come_along(tmp_path: Path) -> None:
    index, links, root = tmp_path / "index" / "simple", tmp_path / "links", tmp_path / "root"
    for each in (index, links, root / "etc"):
        each.mkdir(parents=True)
    bundle = tmp_path / "own.pem"
    bundle.write_text("a certificate")
    pip = f"[global]\nindex-url = file://{index}\nfind-links = {links}\n"
    folders = Machine.folders_in(pip)
    assert folders == (index.parent, links)
    Machine({"PIP_CERT": str(bundle)}, pip, folders, 'Acquire::Retries "3";').furnish(root)
    assert (root / "etc/pip.conf").read_text() == pip
    assert (root / str(bundle)[1:]).read_text() == "a certificate"
    assert (root / str(links)[1:]).is_dir()
    assert "Retries" in (root / "etc/apt/apt.conf.d/90machine").read_text()


def test_what_changed_outside_the_checkout_is_found(tmp_path: Path) -> None:
    upper, mine = tmp_path / "upper", Path("/home/x/checkout")
    for name in ("etc/old", "etc/new", "home/x/checkout/new", "home/x/.cache"):
        path = upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    began = tmp_path / "began"
    began.touch()
    moment = began.stat().st_ctime
    while (upper / "etc/new").stat().st_ctime <= moment:
        for name in ("etc/new", "home/x/checkout/new", "home/x/.cache"):
            (upper / name).write_text("now")
    assert sorted(changes(upper, mine, moment)) == ["/etc/new", "/home/x/.cache"]


def test_a_python_is_what_it_says_of_itself(tmp_path: Path) -> None:
    assert version(Path(sys.executable)) == f"{sys.version_info[0]}.{sys.version_info[1]}"
    shim = tmp_path / "python3.10"
    shim.write_text("#!/bin/sh\necho 'python3.10: command not found' >&2; exit 127\n")
    shim.chmod(0o755)
    assert version(shim) == ""
    assert version(tmp_path / "none") == ""


def test_the_mirror_is_that_of_the_machine_or_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine({}, "", (), "")
    archive = Archive(tmp_path / "apt")
    for text in ("deb [signed-by=/k.gpg] http://m.example/debian trixie main\n",
                 "Types: deb\nURIs: http://m.example/debian/\nSuites: trixie\n"):  # fmt: skip
        (tmp_path / "a.sources").write_text(text)
        assert Roots(tmp_path, archive, machine, None, [tmp_path / "a.sources"]).mirror == "http://m.example/debian"
    assert Roots(tmp_path, archive, machine, "http://n", []).mirror == "http://n"
    with pytest.raises(ShortageError, match="MIRROR="):
        Roots(tmp_path, archive, machine, None, [])


@pytest.mark.parametrize("strict", ["", "true"])
def test_where_it_cannot_be_tried_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], strict: str
) -> None:
    monkeypatch.setenv("CI", strict)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["roots", "--suites", "trixie"]) == 0
    assert "SKIPPED: NOTHING was tried: only root" in capsys.readouterr().err


def test_a_shortage_hides_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = outcome(tmp_path, PASSED), outcome(tmp_path, PASSED, FAILED)
    assert cannot("no mirror", [good]) == 0
    assert cannot("no mirror", [good, bad]) == 1
    assert "SKIPPED: only 2 of them were tried: no mirror" in capsys.readouterr().err


def test_root_of_a_container_that_may_not_mount_gets_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("unshare", "setpriv", "mount", "chroot", "tar"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1\n")
        program.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Archive, "exists", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert "may not mount: unshare: unshare failed" in why_no_root_can_be_entered()
    for name in ("unshare", "tar"):
        monkeypatch.setenv("PATH", str(tmp_path))
        (tmp_path / name).unlink()
        assert "util-linux" in why_no_root_can_be_entered()


def test_what_takes_too_long_is_ended_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "LIMIT", 0.2)
    within_limit(["sh", "-c", "echo begun; exec sleep 600"], tmp_path / "place.log")
    found = Outcome.read("sid", "root", tmp_path, [])
    assert not found.good
    assert "it was ended after" in found.words()


GIT = """#!/bin/sh
case "$1" in
rev-parse) echo c0ffee ;;
status) echo " M Makefile" ;;
log) echo "$4 a commit" ;;
archive) [ "$2" = c0ffee ] && tar -c -C ../committed . ;;
esac
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A checkout in which things were built."""
    root = tmp_path / "root"
    for name in (".gitignore", "Makefile", "tests/a.py", "tests/__pycache__/a.pyc", ".venv/bin/python", "x.egg-info/y"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("/.venv/\n__pycache__/\n*.egg-info/\n")
    return root


def test_what_is_tried_is_what_is_committed(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git is a stand-in: a bare machine has none. With the real one, test-bare itself begins."""
    for name, held in (("bin/git", GIT), ("committed/Makefile", "committed"), ("root/.git/HEAD", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(held)
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    checkout = Checkout(files)
    assert checkout.title == "c0ffee a commit\nNOT tried are the uncommitted changes in\nM Makefile"
    checkout.put(tmp_path / "copy")
    assert [each.name for each in (tmp_path / "copy").iterdir()] == ["Makefile"]
    assert (tmp_path / "copy" / "Makefile").read_text() == "committed"


def test_without_a_repository_the_files_are_tried_but_for_what_was_built(tmp_path: Path, files: Path) -> None:
    checkout = Checkout(files)
    assert "no git checkout" in checkout.title
    checkout.put(tmp_path / "copy")
    copied = {str(each.relative_to(tmp_path / "copy")) for each in (tmp_path / "copy").rglob("*") if each.is_file()}
    assert copied == {".gitignore", "Makefile", "tests/a.py"}


def test_a_bare_root_has_only_what_the_readme_names() -> None:
    sentence = r"You need Python 3\.10 or newer and `make`: on Debian [^`]*(`[^.]*) are enough"
    named = re.search(sentence, README.read_text())
    assert named is not None
    assert re.findall(r"`([^`]+)`", named[1]) == list(README_NAMES)


def test_ci_tries_one() -> None:
    assert re.search(r"(?m)^make test-bare SUITES=\w+ AS=user\b", (README.parent / ".ci" / "run").read_text())


def test_the_script_that_enters_a_root_is_one() -> None:
    script = Path(__file__).with_name("enter.sh")
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_a_supported_python_that_is_not_here_is_shouted_about(capsys: pytest.CaptureFixture[str]) -> None:
    tell_missing({"3.10", "3.12", "3.13"})
    assert "SKIPPED: NOTHING was tried with Python 3.11, 3.14:" in capsys.readouterr().err
    tell_missing(SUPPORTED)
    assert capsys.readouterr().err == ""


def test_every_supported_python_is_one_that_the_project_names() -> None:
    project = (README.parent / "pyproject.toml").read_text()
    assert re.findall(r"Python :: (3\.[0-9]+)", project) == list(SUPPORTED)


def test_make_hands_nothing_down_to_the_make_that_is_tried(tmp_path: Path) -> None:
    """Else ARGS for pytest would be arguments of `make run`, and each make would tell of its folder."""
    handed_down = tmp_path / "Makefile"
    handed_down.write_text("all:\n\t@env\n")
    told = subprocess.run(["make", "-C", str(tmp_path), "ARGS=-k host"], capture_output=True, text=True, check=True)
    environment = dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)
    assert "MAKEFLAGS" in environment
    kept = surroundings(environment, tmp_path)
    assert not kept.keys() & {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS"}
    assert kept["PATH"] == environment["PATH"]
