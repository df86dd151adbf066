"""The command: whose data it shows, what programs get, and exit statuses."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.screen.agents import canned, serving

QUICK = ["--interval", "100ms"]
IDLE = [*QUICK, "--scenario", "idle"]


def top(*arguments: str, status: int = 0) -> str:
    ended = warm.command(["top", *arguments])
    assert ended.status == status, ended.error.decode()
    return ended.output.decode()


def refused(*arguments: str) -> str:
    ended = warm.command(["top", *arguments])
    assert (ended.status, ended.output) == (2, b""), ended
    lines = ended.error.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_json_and_csv_of_a_node_that_is_sampled_by_the_command_itself() -> None:
    (node,) = json.loads(top("--json", *IDLE))["nodes"]
    assert (node["origin"], node["synthetic"], node["problem"], node["alerts"]) == ("sampled here", "idle", None, None)
    assert [gpu["gpu"] for gpu in node["gpus"]] == list("01234567")
    gpu = node["gpus"][0]
    assert (gpu["up"], gpu["state"], gpu["utilization_ratio"]) == (True, "idle", 0.0)
    assert gpu["nvlink_bytes_per_second"] is not None
    rows = list(csv.DictReader(io.StringIO(top("--csv", *IDLE))))
    assert [row["gpu"] for row in rows] == list("01234567")
    assert rows[0]["utilization_ratio"] == "0.0"
    assert rows[0]["job"] == ""


def test_without_a_terminal_it_prints_one_picture_without_escapes() -> None:
    picture = top("--ascii", *IDLE)
    assert picture.isascii()
    assert "\x1b" not in picture
    assert len(re.findall(r"^ +\d \S", picture, re.MULTILINE)) == 8


def test_in_the_c_locale_it_prints_ascii_alone() -> None:
    ended = warm.command(["top", "--once", *IDLE], environment={"LC_ALL": "C", "PYTHONUTF8": "1"})
    assert ended.status == 0
    assert ended.output.isascii()


@pytest.mark.parametrize("words", [["--scenario", "idle"], ["--backend", "none"], ["--no-attach"]])
def test_options_of_this_node_are_refused_beside_agents_of_others(words: list[str]) -> None:
    assert refused("--once", "--url", "127.0.0.1:9", *words).startswith(f"coldplate: {words[0]}: ")


def configuration(tmp_path: Path, place: str, **rack: object) -> list[str]:
    file = tmp_path / "coldplate.yaml"
    content = {"node": {"name": "here"}, "web": {"listen": [place]}, "rack": rack, "backends": {"devices": "none"}}
    file.write_text(json.dumps(content))
    return ["--config.file", str(file), *QUICK]


def test_it_attaches_to_the_agent_of_this_node_unless_told_not_to(tmp_path: Path) -> None:
    with serving(canned("checkpoint-stall", 200)) as place:
        options = configuration(tmp_path, place)
        document = json.loads(top("--json", *options))
        (node,) = document["nodes"]
        assert (node["node"], node["origin"], node["synthetic"]) == ("here", "from its agent", "checkpoint-stall")
        assert "GpuImbalance" in {alert["alert"] for alert in node["alerts"]}
        assert node["gpus"][0]["nvlink_bytes_per_second"] is not None
        assert document["troubles"][0]["text"].startswith("GPU 0 ")
        (own,) = json.loads(top("--json", "--no-attach", *options))["nodes"]
        assert (own["node"], own["origin"], own["gpus"]) == ("here", "sampled here", [])


def test_a_foreign_server_on_the_agents_port_is_told_of_and_not_attached_to(tmp_path: Path) -> None:
    with serving(lambda _: (200, b"<html>")) as place:
        document = json.loads(top("--json", *configuration(tmp_path, place)))
    assert document["nodes"][0]["origin"] == "sampled here"
    told = document["troubles"][-1]
    assert told == {
        "tone": "calm",
        "text": f"not attached to http://{place}: the answer is not JSON: is this the port of an agent?",
    }


def test_the_rack_is_this_node_and_its_peers(tmp_path: Path) -> None:
    with serving(canned("straggler", 200)) as here, serving(canned("straggler", 200)) as there:
        options = configuration(tmp_path, here, name="r1", peers=[there, "127.0.0.1:1"])
        document = json.loads(top("--json", "--rack", *options))
    told = {node["node"]: node["problem"] for node in document["nodes"]}
    assert told == {"here": None, there: None, "127.0.0.1:1": "no answer: Connection refused"}


def test_other_nodes_by_url_and_none_that_answers() -> None:
    with serving(canned("checkpoint-stall", 200)) as place:
        rows = list(csv.DictReader(io.StringIO(top("--csv", *QUICK, "--url", place, "127.0.0.1:1"))))
    assert [row["node"] for row in rows] == [place] * 8 + ["127.0.0.1:1"]
    assert (rows[-1]["state"], rows[-1]["why"]) == ("no answer", "no answer: Connection refused")
    assert "busy" in rows[0]["why"]
    assert "Connection refused" in top("--once", *QUICK, "--url", "127.0.0.1:1", status=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "http://user:secret@node"], "--url: url: contains credentials"),
        (["--rack"], "--rack: no peers are configured"),
        (["--interval", "5h"], "give a time from 100ms to 60s"),
        (["--json", "--csv"], "not allowed with argument"),
        (["--scenario", "stragler"], "stragler"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], told: str) -> None:
    message = refused(*arguments)
    assert told in message
    assert "secret" not in message


def without_rich(arguments: list[str]) -> tuple[int, str]:
    """In a process of its own: status and errors of the command where rich is missing."""
    from agent.cli import main

    modules: dict[str, Any] = sys.modules
    modules["rich"] = None
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
        status = main(["top", *arguments])
    return status, told.getvalue()


def test_programs_need_no_rich_and_people_are_told_to_install_it() -> None:
    assert warm.call(without_rich, ["--csv", *IDLE]) == (0, "")
    status, told = warm.call(without_rich, ["--once", *IDLE])
    assert status == 2
    assert "make install EXTRAS=top" in told
