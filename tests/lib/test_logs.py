"""Log lines: names in them are others', and a terminal must neither obey nor misread them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from agent.lib import logs

NAME = "pay\u202eload\u2028\x1b[2J \u200f\x7f"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before, level


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_what_a_terminal_would_obey_is_escaped(style: str, stream: io.StringIO) -> None:
    logs.set_up("info", style, stream)
    logging.getLogger("x").info("rule %s failed", NAME, extra={"facts": {"rule_group": NAME, "unit": "µΩ"}})
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "\\u202e" in line and "µΩ" in line
    if style == "json":
        assert (json.loads(line)["rule_group"], json.loads(line)["msg"]) == (NAME, f"rule {NAME} failed")
