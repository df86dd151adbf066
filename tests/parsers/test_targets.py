"""Every module that parses foreign input has a fuzz target in tests/lab/fuzz, or a reason to have none.

A module counts as a parser if it calls what parsers are made of. That is a mark of its text: a parser that cuts its
input with `split` and `int` alone has none, and is added to a target by whoever writes it.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.lab.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
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
    "agent/commands/doctor/checks/gpu_driver.py": "the loader's cache, which only root writes: finds paths in it",
    "agent/commands/doctor/driver_calls.py": "a text of the C library, as tests/nvml/test_pynvml_driver.py has them",
    "agent/commands/doctor/support_bundle.py": "an answer of the agent's own API, which agent_client reads",
    "agent/commands/once.py": "what this process wrote itself",
    "agent/commands/top/screen/text_layout.py": "ASCII that this process has just encoded",
    "agent/lib/textfile.py": "gives the text of a file; its callers have targets",
    "agent/lib/wording.py": "ASCII that this process has just encoded",
    "agent/rack/peers.py": "calls agent/rack/peer_messages.py",
    "agent/worker/__main__.py": "the command line that the supervisor gave",
    "agent/worker/loop.py": "the supervisor's orders",
    "agent/worker/supervisor.py": "calls agent/worker/decode.py",
    "alerts/notify/delivery.py": "random bytes",
    "alerts/notify/receiver.py": "a receiver's answer, which is only shown",
    "exporters/push/remote_write.py": "a receiver's answer, which is only shown",
    "exporters/push/write_request.py": "a constant of its own",
    "exporters/protection/tls_context.py": "certificates of the operator's, which OpenSSL reads",
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
