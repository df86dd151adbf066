"""`coldplate check --url`: the verdict on a node by what its agent reports, and what is refused beside it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests import warm
from tests.screen.agents import canned, serving

Pages = Callable[[str], tuple[int, bytes]]


def check(*arguments: str) -> tuple[int, str, str]:
    ended = warm.command(["check", *arguments, "--timeout", "20s"])
    assert ended.status is not None
    return ended.status, ended.output.decode(), ended.error.decode()


def test_a_node_is_judged_by_its_agent() -> None:
    with serving(canned("nvlink-down", 400)) as place:
        status, out, _ = check("--url", place, "--json", "--config.file", "/dev/null")
    page = json.loads(out)
    found = {each["name"]: each["verdict"] for each in page["findings"]}
    assert (status, page["verdict"]) == (2, "critical")
    assert (found["nvlinks"], found["agent"], found["driver"], found["gpu-count"]) == ("critical", "ok", "ok", "ok")
    assert "xids" not in found


def test_an_agent_without_rules_is_no_finding() -> None:
    pages = canned("idle", 100)

    def without_rules(path: str) -> tuple[int, bytes]:
        return (404, b"") if path.startswith("/api/v1/alerts") else pages(path)

    with serving(without_rules) as place:
        status, out, _ = check("--url", place, "--json", "--config.file", "/dev/null")
    assert status == 0
    assert not {"agent", "alerts"} & {each["name"] for each in json.loads(out)["findings"]}


@pytest.mark.parametrize("pages", [lambda _: (200, b"<html>"), lambda _: (503, b""), lambda _: (200, b"[]")])
def test_what_is_no_agent_leaves_the_node_unknown(pages: Pages) -> None:
    with serving(pages) as place:
        status, out, error = check("--url", place)
    assert (status, out, error.count("\n")) == (3, "", 1)
    assert error.startswith(f"coldplate: http://{place}: ")


def test_nobody_who_answers_leaves_the_node_unknown() -> None:
    status, out, error = check("--url", "127.0.0.1:1")
    assert (status, out) == (3, "")
    assert "Connection refused" in error and "systemctl status coldplate" in error


@pytest.mark.parametrize(
    "words", [["--backend", "none"], ["--scenario", "idle"], ["--learn"], ["--at", "5"], ["--agent", "none"]]
)
def test_options_of_this_node_are_refused_beside_an_agent(words: list[str]) -> None:
    status, out, error = check("--url", "127.0.0.1:1", *words)
    assert (status, out) == (3, "")
    assert error.startswith(f"coldplate: {words[0]}: cannot be used with --url")
