"""Each module that decodes foreign input has a fuzz target, and the corpus of each target is played."""

import ast
import functools
import random
import re
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.lab.fuzz.mutating import Mutator
from tests.lab.fuzz.target import ROOT, Target, attempt
from tests.lab.fuzz.targets import TARGETS

MARKS = {
    "loads",
    "unpack",
    "unpack_from",
    "iter_unpack",
    "from_bytes",
    "fromisoformat",
    "strptime",
    "convert",
    "decode",
}
CALL = re.compile(rf"\b({'|'.join(MARKS)})\(")
"""Faster than to parse what has no such text."""

UNFUZZED = {
    "agent/backends/nvml/pynvml_driver.py": "structures of the C library: tests/nvml/test_pynvml_driver.py",
    "agent/broker/ipmidev.py": "the kernel's structures: tests/power/test_ipmi.py",
    "agent/commands/doctor/checks/gpu_driver.py": "the loader's cache, which only root writes: finds paths in it",
    "agent/commands/doctor/agent_process.py": "command lines: tests/doctor/test_agent_process.py",
    "agent/commands/doctor/driver_calls.py": "a text of the C library, as tests/nvml/test_pynvml_driver.py has them",
    "agent/commands/doctor/support_bundle.py": "an answer of the agent's own API, which agent_client reads",
    "agent/commands/once.py": "what this process wrote itself",
    "agent/commands/render/__init__.py": "boards that the package ships",
    "agent/commands/top/screen/text_layout.py": "ASCII that this process has just encoded",
    "agent/lib/directory_lock.py": "a line that an agent wrote, which is only shown: tests/lib/test_directory_lock.py",
    "agent/lib/textfile.py": "gives the text of a file; its callers have targets",
    "agent/lib/wording.py": "ASCII that this process has just encoded",
    "agent/rack/peers.py": "calls agent/rack/peer_messages.py",
    "agent/worker/__main__.py": "the command line that the supervisor gave",
    "agent/worker/loop.py": "the supervisor's orders",
    "agent/worker/supervisor.py": "calls agent/worker/decode.py",
    "alerts/notify/delivery.py": "random bytes",
    "exporters/protection/tls.py": "certificates of the operator's, which OpenSSL reads",
}
"""Modules with a mark that no target names, and why."""


@functools.cache
def parsers() -> frozenset[str]:
    return frozenset(
        str(path.relative_to(ROOT))
        for top in ("agent", "alerts", "exporters")
        for path in (ROOT / top).rglob("*.py")
        if CALL.search(path.read_text(encoding="utf-8"))
        if any(_marked(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    )


def _marked(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in MARKS


NAMED = {module for target in TARGETS.values() for module in target.parsers}


def test_every_parser_has_a_target() -> None:
    assert sorted(parsers() - NAMED - UNFUZZED.keys()) == []


def test_every_exception_is_one() -> None:
    assert sorted(UNFUZZED.keys() - parsers()) == []
    assert sorted(UNFUZZED.keys() & NAMED) == []


def test_every_module_that_a_target_names_exists() -> None:
    assert [module for module in sorted(NAMED) if not (ROOT / module).is_file()] == []


MUTATIONS = 12
"""Changed inputs for each target, always the same: `make fuzz` is for more."""

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


class Reached:
    """The files whose functions were called."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)


@EACH
def test_the_corpus(target: Target, tmp_path: Path) -> None:
    folder, reached = tmp_path / "input", Reached()
    before = sys.getprofile()
    for name, data in target.corpus():
        sys.setprofile(reached.note)
        threading.setprofile(reached.note)
        try:
            crash = attempt(target, data, folder)
        finally:
            threading.setprofile(before)
            sys.setprofile(before)
        assert crash is None, f"{name}: {crash.what}\n{crash.trace}"
    assert [module for module in target.parsers if str(ROOT / module) not in reached.files] == []


@EACH
@pytest.mark.usefixtures("traced")
def test_some_changes_of_the_corpus(target: Target, tmp_path: Path) -> None:
    corpus = [data for _, data in target.corpus() if len(data) < 16 * 1024]
    mutator = Mutator(random.Random(target.name), target.dictionary(), 16 * 1024)
    for number in range(MUTATIONS):
        data = mutator.changed(corpus[number % len(corpus)], corpus)
        crash = attempt(target, data, tmp_path / "input")
        assert crash is None, f"{data!r}: {crash.what}\n{crash.trace}"
