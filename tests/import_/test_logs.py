"""Logs of other programs and answers of Prometheus become recordings; what is not understood is named."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.cli import main
from agent.recording.recording_reader import Recording
from tests.screen.agents import serving

HEADER = (
    "timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], memory.used [MiB], temperature.gpu, "
    "clocks.current.sm [MHz], clocks_throttle_reasons.hw_slowdown, clocks_event_reasons.sw_power_cap, fan.speed [%]\n"
)
BEGIN = 1_700_000_000.0


def line(second: int, gpu: int, *, utilization: str = "98 %", power: str = "450.10 W") -> str:
    stamp = f"2023/11/14 22:13:{20 + second:02}.000"
    return (
        f"{stamp}, {gpu}, GPU-{gpu}, NVIDIA H100 80GB HBM3, {utilization}, {power}, 1024 MiB, 61, 1980 MHz, "
        "Not Active, Active, [N/A]\n"
    )


def run(*arguments: object) -> int:
    return main(["import", *map(str, arguments)])


def values(path: Path) -> list[tuple[float, dict[str, float]]]:
    """The wall seconds of each snapshot since BEGIN, and its values by metric, GPU and labels."""
    with Recording(path) as recording:
        return [
            (
                snapshot.at.wall - BEGIN,
                {
                    " ".join([each.metric.name.removeprefix("coldplate_gpu_"),
                              *(value for name, value in each.series.all_labels if name != "uuid")]): each.value
                    for each in snapshot
                },
            )
            for snapshot in recording.snapshots()
        ]  # fmt: skip


def test_a_log_of_nvidia_smi(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "gpu.coldplate"
    log.write_text(HEADER + line(0, 0) + line(0, 1, utilization="[N/A]") + line(5, 0, power="0.00 W") + line(5, 1))
    assert run(log, "-o", out, "--utc", "--node", "n7") == 0
    told = capsys.readouterr()
    assert told.out == f"{out}: 2 snapshots\n"
    assert [each.partition(": column ")[2] for each in told.err.splitlines()] == [
        "'fan.speed' is left out: coldplate has nothing of that kind"
    ]
    (first, at_first), (second, at_second) = values(out)
    assert (first, second) == (0.0, 5.0)
    assert {name: value for name, value in at_first.items() if name.split()[1] == "0"} == {
        "up 0": 1.0,
        "info 0   NVIDIA H100 80GB HBM3": 1.0,
        "utilization_ratio 0": pytest.approx(0.98),
        "power_watts 0": 450.1,
        "memory_used_bytes 0": 2.0**30,
        "temperature_celsius 0": 61.0,
        "clock_hertz 0 sm": 1.98e9,
        "hw_slowdown_active 0": 0.0,
        "throttle_active 0 sw_power_cap": 1.0,
    }
    assert "utilization_ratio 1" not in at_first, "what is not told is absent"
    assert at_second["power_watts 0"] == 0.0, "zero is a value"
    with Recording(out) as recording:
        assert (recording.header.node, recording.header.interval) == ("n7", 5.0)
        assert [each.sequence for each in recording.snapshots()] == [1, 2]


def test_states_and_seconds_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text(
        "timestamp, index, gpu_recovery_action, fabric.state, fabric.status, "
        "clocks_event_reasons_counters.hw_thermal_slowdown [us]\n"
        "2023/11/14 22:13:20.000, 0, Reset, Completed, Success, 2500000 us\n"
        "2023/11/14 22:13:20.000, 1, None, Completed, Insufficient Resources, [N/A]\n"
        "2023/11/14 22:13:20.000, 2, Sing, N/A, N/A, 0 us\n"
    )
    assert run(log, "-o", out, "--utc") == 0
    (_, first) = values(out)[0]
    active = {name for name, value in first.items() if value and not name.startswith("up")}
    assert active == {
        "recovery_action 0 gpu_reset",
        "recovery_action 1 none",
        "fabric_state 0 completed",
        "fabric_state 1 failed",
        "throttle_seconds_total 0 hw_thermal_slowdown",
    }
    assert first["throttle_seconds_total 0 hw_thermal_slowdown"] == 2.5
    assert first["fabric_state 1 completed"] == 0.0
    assert "'Sing' is not a known value of 'gpu_recovery_action'" in capsys.readouterr().err


def test_values_without_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of `--format=csv,nounits`: the header has them."""
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text("timestamp, uuid, power.draw [W], memory.total [MiB]\n2023/11/14 22:13:20.500, GPU-a, 70.5, 81559\n")
    assert run(log, "-o", out, "--utc") == 0
    assert values(out) == [(0.5, {"up 0": 1.0, "power_watts 0": 70.5, "memory_total_bytes 0": 81559 * 2.0**20})]
    assert main(["record", "--info", str(out)]) == 0
    assert "1 x GPU of unknown model" in capsys.readouterr().out


def test_what_coldplate_exposes_under_names_of_nvidia_smi_can_be_imported(tmp_path: Path) -> None:
    columns = {
        "clocks.mem [MHz]": "2619 MHz",
        "clocks.max.sm [MHz]": "1980 MHz",
        "clocks.current.video [MHz]": "1500 MHz",
        "pcie.link.gen": "5",
        "ecc.errors.corrected.volatile.total": "3",
        "ecc.mode.current": "Enabled",
        "persistence_mode": "Disabled",
        "remapped_rows.pending": "No",
    }
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text(f"timestamp, index, {', '.join(columns)}\n2023/11/14 22:13:20, 0, {', '.join(columns.values())}\n")
    assert run(log, "-o", out, "--utc") == 0
    assert values(out) == [
        (
            0.0,
            {
                "up 0": 1.0, "clock_hertz 0 memory": 2.619e9, "clock_limit_hertz 0 sm": 1.98e9,
                "clock_hertz 0 video": 1.5e9, "pcie_link_generation 0": 5.0, "ecc_errors_total 0 corrected": 3.0,
                "ecc_enabled 0": 1.0, "persistence_enabled 0": 0.0, "row_remap_pending 0": 0.0,
            },
        )
    ]  # fmt: skip


def test_a_log_that_was_stopped_and_begun_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last line is torn, another header follows, and the numbers of the snapshots show the hole."""
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    lines = [HEADER, line(0, 0), line(1, 0), line(2, 0)[:40] + "\n"]
    lines += [HEADER, line(30, 0, power="9e12 W"), line(31, 0, power="lots")]
    log.write_text("".join(lines))
    assert run(log, "-o", out, "--utc") == 0
    assert f"{log}:4: has 4 columns and not 12; the line is left out" in capsys.readouterr().err
    with Recording(out) as recording:
        assert [each.sequence for each in recording.snapshots()] == [1, 2, 31, 32]
    assert ["power_watts 0" in found for _, found in values(out)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", ": is empty; log with: nvidia-smi"),
        ("timestamp, index\n" + "0" * 200_000 + "\n", ":2: field larger than field limit"),
        ("time,load\n1,2\n", ":1: 'time,load' is not a header of nvidia-smi; log with: nvidia-smi"),
        ("index, power.draw [W]\n0, 70 W\n", ":1: has no column timestamp; log with"),
        ("timestamp, power.draw [W]\n2023/11/14 22:13:20, 70 W\n", ":1: the lines do not name their GPU"),
        (
            "timestamp, index, power.draw [hp]\n14 Nov, 0, 1\n",
            ":1: column 'power.draw' is left out: its unit 'hp' is not",
        ),
        ("timestamp, index, power.draw [W]\n14 Nov, 0, 1\n", ":2: '14 Nov' is not a timestamp of nvidia-smi"),
        ("#Entity   POWER\nGPU 0 70\n", ":1: '#Entity   POWER' is not a header of nvidia-smi; log with: nvidia-smi"),
        ("# gpu   pwr\n# Idx     W\n 0 70\n", " is not a header of nvidia-smi; log with: nvidia-smi --query-gpu"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text(content)
    assert run(log, "-o", out) == 1
    assert problem in capsys.readouterr().err
    assert not out.exists()


def test_a_log_that_names_no_gpu_is_of_the_one_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text("timestamp, power.draw [W]\n2023/11/14 22:13:20, 70 W\n2023/11/14 22:13:21, 71 W\n")
    assert run(log, "-o", out, "--utc", "--gpu", "3") == 0
    assert values(out) == [(0.0, {"up 3": 1.0, "power_watts 3": 70.0}), (1.0, {"up 3": 1.0, "power_watts 3": 71.0})]
    assert run(log, "-o", tmp_path / "other", "--gpu", "first") == 2
    assert "--gpu: must be the GPU's number" in capsys.readouterr().err


def test_reasons_in_one_number_are_told_apart(tmp_path: Path) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text(
        "timestamp, index, clocks_event_reasons.active\n2023/11/14 22:13:20, 0, 0x0000000000000048\n"
        "2023/11/14 22:13:20, 1, [N/A]\n"
    )
    assert run(log, "-o", out, "--utc") == 0
    ((_, found),) = values(out)
    set_ = {name for name, value in found.items() if value and not name.startswith("up")}
    assert set_ == {"throttle_active 0 hw_thermal_slowdown", "hw_slowdown_active 0"}
    assert found["throttle_active 0 sw_power_cap"] == 0.0
    assert not any(name.endswith(" 1") for name in found if "active" in name)


def test_a_recording_that_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text(HEADER + line(0, 0))
    out.write_text("mine")
    assert run(log, "-o", out) == 1
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"


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


def run_history(url: str, out: Path, *options: str) -> int:
    return main(
        ["import", "--prometheus", url, "-o", str(out), "--start", "1700000000", "--end", "1700007200", *options]
    )


def test_each_node_is_recorded_as_it_was(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run_history(url, out) == 0
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


def test_two_agents_of_one_host_stay_two_nodes(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ in their port; another exporter of a host, which has other series, belongs to its node."""

    def power(instance: str, value: float, name: str = "coldplate_node_power_watts") -> tuple[dict[str, str], float]:
        return {"__name__": name, "instance": instance, "gpu": "0", "uuid": "GPU-0", "source": "ipmi"}, value

    dcgm = power("n2:9400", 300, "DCGM_FI_DEV_POWER_USAGE")
    own = power("n2:19400", 301, "coldplate_gpu_power_watts")
    monkeypatch.setitem(globals(), "SERIES", [power("n1:19400", 5000), power("n1:19401", 6000), own, dcgm])
    assert run_history(url, tmp_path / "out") == 0
    assert "several instances of 'n1' have the same series" in capsys.readouterr().err
    values: dict[str, set[float]] = {}
    with Recording(tmp_path / "out") as recording:
        for header, snapshot in recording.recorded():
            values.setdefault(header.node, set()).update(reading.value for reading in snapshot)
    assert values == {"n1:19400": {5000}, "n1:19401": {6000}, "n2": {301}}


def test_what_the_server_says_against_it_is_told(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_history(url, tmp_path / "out", "--match", "bad") == 1
    assert "parse error" in capsys.readouterr().err
    assert run_history(url, tmp_path / "out", "--match", "odd") == 1
    assert "is not a matrix of series" in capsys.readouterr().err
    assert run_history("http://127.0.0.1:1", tmp_path / "out") == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    assert run_history("ftp://x", tmp_path / "out") == 2
    assert run_history(url, tmp_path / "out", "--end", "5") == 2
    assert "--end: is before --start" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
