"""What a Prometheus server answers becomes recordings of the nodes that it scraped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.cli import main
from agent.recording.recording_reader import Recording
from tests.screen.agents import serving

SERIES: list[tuple[dict[str, str], float]] = [
    ({"__name__": "coldplate_gpu_power_watts", "instance": "n1:19400", "job": "coldplate", "gpu": "0",
      "uuid": "GPU-0"}, 400),
    ({"__name__": "coldplate_nvlink_up", "instance": "n1:19400", "gpu": "0", "uuid": "GPU-0", "link": "7"}, 1),
    ({"__name__": "coldplate_gpu_clock_hertz", "instance": "n1:19400", "gpu": "0", "uuid": "GPU-0", "domain": "sm",
      "cluster": "a"}, 1.9e9),
    ({"__name__": "coldplate_node_power_watts", "instance": "n2:19400", "source": "ipmi"}, 6000),
    ({"__name__": "DCGM_FI_DEV_FB_USED", "instance": "10.0.0.3:9400", "Hostname": "n3", "gpu": "1",
      "UUID": "GPU-1"}, 2048),
    ({"__name__": "up", "instance": "n1:19400"}, 1),
    ({"__name__": "coldplate_gpu_power_watts", "instance": "n1:19400"}, 1),
]  # fmt: skip


def answer(path: str) -> tuple[int, bytes]:
    """As a server with these series answers; the queries `bad` and `odd` go wrong."""
    asked = {name: value[0] for name, value in parse_qs(urlsplit(path).query).items()}
    assert path.startswith("/prometheus/api/v1/query_range?")
    start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
    assert (end - start) / step < 11_000, "a real server refuses more points"
    if asked["query"] == "bad":
        return 400, json.dumps({"status": "error", "error": "parse error"}).encode()
    times = [start + number * step for number in range(int((end - start) / step) + 1)]
    matrix = [{"metric": labels, "values": [[at, str(value)] for at in times]} for labels, value in SERIES]
    kind, result = ("scalar", [1, "2"]) if asked["query"] == "odd" else ("matrix", matrix)
    return 200, json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


@pytest.fixture
def url() -> Iterator[str]:
    with serving(answer) as place:
        yield f"http://{place}/prometheus"


def run(url: str, out: Path, *options: str) -> int:
    return main(
        ["import", "--prometheus", url, "-o", str(out), "--start", "1700000000", "--end", "1700007200", *options]
    )


def test_each_node_is_recorded_as_it_was(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(url, out) == 0
    told = capsys.readouterr().err.splitlines()
    assert [each.partition(": series of ")[2] for each in told] == [
        "'up' are left out: coldplate has no such metric",
        "coldplate_gpu_power_watts without the labels of a Gpu are left out",
    ]
    nodes: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    with Recording(out) as recording:
        for header, snapshot in recording.recorded():
            nodes[header.node] = [f"{each.series!r} {each.value:g}" for each in snapshot]
            counts[header.node] = counts.get(header.node, 0) + 1
        assert recording.problems == []
    assert nodes == {
        "n1": [
            'coldplate_gpu_power_watts{gpu="0",uuid="GPU-0"} 400',
            'coldplate_nvlink_up{gpu="0",uuid="GPU-0",link="7"} 1',
            'coldplate_gpu_clock_hertz{gpu="0",uuid="GPU-0",domain="sm"} 1.9e+09',
        ],
        "n2": ['coldplate_node_power_watts{source="ipmi"} 6000'],
        "n3": ['coldplate_gpu_memory_used_bytes{gpu="1",uuid="GPU-1"} 2.14748e+09'],
    }
    assert counts == {"n1": 481, "n2": 481, "n3": 481}


def test_what_the_server_says_against_it_is_told(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(url, tmp_path / "out", "--match", "bad") == 1
    assert "parse error" in capsys.readouterr().err
    assert run(url, tmp_path / "out", "--match", "odd") == 1
    assert "is no matrix of series" in capsys.readouterr().err
    assert run("http://127.0.0.1:1", tmp_path / "out") == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    assert run("ftp://x", tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
