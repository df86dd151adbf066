"""Logs of other programs become recordings; what is not understood is named, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli import main
from agent.recording.recording_reader import Recording

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
        "'name' is left out: coldplate has nothing of that kind",
        "'fan.speed' is left out: coldplate has nothing of that kind",
    ]
    (first, at_first), (second, at_second) = values(out)
    assert (first, second) == (0.0, 5.0)
    assert {name: value for name, value in at_first.items() if name.split()[1] == "0"} == {
        "up 0": 1.0,
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


def test_values_without_units(tmp_path: Path) -> None:
    """As of `--format=csv,nounits`: the header has them."""
    log, out = tmp_path / "gpu.csv", tmp_path / "out"
    log.write_text("timestamp, uuid, power.draw [W], memory.total [MiB]\n2023/11/14 22:13:20.500, GPU-a, 70.5, 81559\n")
    assert run(log, "-o", out, "--utc") == 0
    assert values(out) == [(0.5, {"up 0": 1.0, "power_watts 0": 70.5, "memory_total_bytes 0": 81559 * 2.0**20})]


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
        ("time,load\n1,2\n", ":1: 'time,load' is no header of nvidia-smi's; log with: nvidia-smi"),
        ("index, power.draw [W]\n0, 70 W\n", ":1: has no column timestamp; log with"),
        ("timestamp, power.draw [W]\n2023/11/14 22:13:20, 70 W\n", ":1: the lines do not name their GPU"),
        (
            "timestamp, index, power.draw [hp]\n14 Nov, 0, 1\n",
            ":1: column 'power.draw' is left out: its unit 'hp' is not",
        ),
        ("timestamp, index, power.draw [W]\n14 Nov, 0, 1\n", ":2: '14 Nov' is no timestamp of nvidia-smi's"),
        ("#Entity   POWER\nGPU 0 70\n", ":1: '#Entity   POWER' is no header of nvidia-smi's; log with: nvidia-smi"),
        ("# gpu   pwr\n# Idx     W\n 0 70\n", " is no header of nvidia-smi's; log with: nvidia-smi --query-gpu"),
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
