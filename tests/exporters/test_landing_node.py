"""What the page at `/` says about the node, its GPUs, ports and jobs, and how bad it says that is."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from agent import catalogue
from agent.model import (
    Alert,
    BackendReport,
    Gap,
    Gpu,
    GroupReport,
    IbPort,
    Instant,
    Node,
    NvLink,
    Outcome,
    PastMoment,
    Phase,
    Reading,
    Reason,
    RuleReport,
)
from tests.asking import context, overview
from tests.exporters.conftest import reading
from tests.frames import frame_of, snapshot_of

NOW = 1_700_000_000.0
GPUS = [Gpu(str(number), f"GPU-{number:08x}") for number in range(8)]


def gpu(number: int, **values: float) -> list[Reading]:
    """A GPU that works, but for these values: the metric's name between coldplate_gpu_ and its unit, if it has one."""
    usual = {
        "up": 1.0,
        "utilization_ratio": 0.98,
        "power_watts": 690.0,
        "power_limit_watts": 700.0,
        "power_limit_default_watts": 700.0,
        "temperature_celsius": 60.0,
        **values,
    }
    job = {"scheduler": "slurm", "job_id": "6001", "user": "ada", "name": "moe", "mig": "0", "shared": "false"}
    entity = GPUS[number]
    return [
        *(reading(f"coldplate_gpu_{name}", value, entity) for name, value in usual.items()),
        reading("coldplate_gpu_clock_hertz", 1.5e9, entity, domain="sm"),
        reading("coldplate_gpu_clock_limit_hertz", 1.98e9, entity, domain="sm"),
        reading("coldplate_gpu_throttle_active", 1.0, entity, reason="sw_power_cap"),
        reading("coldplate_gpu_job_info", 1.0, entity, **job),
        *(reading("coldplate_nvlink_up", 1.0, NvLink(entity, link)) for link in range(18)),
    ]


def lost(number: int) -> list[Reading]:
    entity = GPUS[number]
    return [
        reading("coldplate_gpu_up", 0.0, entity),
        reading("coldplate_gpu_sample_age_seconds", 125.0, entity),
        reading("coldplate_gpu_info", 1.0, entity, slot="0000:c3:00.0", serial="165", model="H100"),
    ]


def port(name: str, rate: float = 50e9, up: float = 1.0, physical: float = 5.0) -> list[Reading]:
    values = {
        "port_up": up,
        "rate_bytes_per_second": rate,
        "state_id": 4.0 if up else 1.0,
        "physical_state_id": physical,
    }
    return [reading(f"coldplate_infiniband_{what}", value, IbPort(name, "1")) for what, value in values.items()]


def firing(name: str, severity: str, **labels: str) -> Alert:
    pairs = tuple(sorted({"alertname": name, "instance": "n1", "severity": severity, **labels}.items()))
    return Alert(name, pairs, Phase.FIRING, 1.0, NOW - 60.0, annotations={"runbook_url": f"http://n1/runbooks/{name}"})


def page(
    readings: Iterable[Reading],
    *alerts: Alert,
    reports: tuple[BackendReport, ...] = (),
    ready: tuple[bool, str] = (True, "fresh"),
    query: str = "",
    evaluated_at: float | None = NOW,
) -> str:
    snapshot = snapshot_of(1, Instant(100.0, NOW), tuple(readings), reports)
    groups = (
        GroupReport("g", "f.yml", 15.0, evaluated_at=evaluated_at, rules=(RuleReport("A", True, "x", alerts=alerts),)),
    )
    runbooks = {each.rule: "# It" for each in alerts}
    view = context(snapshot, readiness=lambda: ready, node="node-17", rules=lambda: groups, runbooks=runbooks)
    return overview(view, query)


def node(*others: list[Reading]) -> list[Reading]:
    """Eight GPUs that work, of which these take the places of their own."""
    given = {each[0].entity: each for each in others}
    expected = reading("coldplate_gpus_expected", 8.0, Node())
    return [expected, *(each for number, entity in enumerate(GPUS) for each in given.get(entity, gpu(number)))]


def banner(text: str) -> tuple[str, str, list[str]]:
    """How bad it looks, the word, and the reasons."""
    found = re.search(r'<section class="state (\w*)" role="status"><h2>(.*?)</h2><ul>(.*?)</ul>', text)
    assert found is not None
    return found[1], found[2], re.findall(r"<li>(.*?)</li>", found[3])


def bodies(text: str, title: str) -> list[tuple[str, str]]:
    """Each row of a table with the tone of its colour, without markup."""
    section = re.search(rf"<h2>{title}.*?</table>", text, re.DOTALL)
    assert section is not None
    found = re.findall(r'<tbody class="(\w*)">(.*?)</tbody>', section[0], re.DOTALL)
    return [(tone, " ".join(re.sub("<[^>]*>", " ", row.replace("<wbr>", "")).split())) for tone, row in found]


def test_a_replay_of_synthetic_devices_is_said_to_be_both() -> None:
    text = page(
        [
            reading("coldplate_replay_info", 1.0, Node(), node="n9", recorded="then"),
            reading("coldplate_synthetic_info", 1.0, Node(), scenario="idle"),
        ]
    )
    assert "Replay of a recording of n9, begun at then" in text
    assert "Synthetic devices, scenario idle: nothing they show is real." in text


def test_a_node_that_is_well_says_so_and_colours_no_row() -> None:
    text = page(node())
    assert banner(text) == ("good", "✔ OK", ["all 8 GPUs answer, and nothing fires"])
    assert "<title>OK: node-17</title>" in text
    rows = bodies(text, "GPUs")
    assert {tone for tone, _ in rows} == {"good"}
    assert rows[0][1] == "0 ✔ up 98 % 690 /700 W 60 °C – – 1.50 /1.98 GHz power cap 18 of 18 up – 6001 ada"
    assert [row.split()[0] for _, row in rows] == list("01234567")


def test_a_lost_gpu_is_unknown_until_a_rule_judges_and_stands_first_with_its_facts() -> None:
    gap = Gap(
        catalogue.BY_NAME["coldplate_gpu_power_watts"], GPUS[5], Reason.LOST, "nvmlDeviceGetPowerUsage: GPU is lost"
    )
    reports = (BackendReport("nvml", Outcome.OK, 0.1, gaps=(gap,)),)
    text = page(node(lost(5)), reports=reports)
    told = "lost: nvmlDeviceGetPowerUsage: GPU is lost; last sample 2 min ago; slot 0000:c3:00.0; serial 165"
    assert banner(text) == ("", "? Unknown", [f"GPU 5: {told}"])
    tone, first = bodies(text, "GPUs")[0]
    assert (tone, first.split()[:3]) == ("", ["5", "?", "lost"])
    assert told in first
    assert len(bodies(text, "GPUs")) == 8
    text = page(node(lost(5)), firing("GpuLost", "critical", gpu="5", uuid=GPUS[5].uuid), reports=reports)
    assert banner(text) == ("bad", "✖ Critical", ["GpuLost", f"GPU 5: {told}"])
    assert "<title>Critical: node-17</title>" in text
    assert bodies(text, "GPUs")[0][0] == "bad"


def test_a_pending_alert_is_shown_with_the_time_until_it_fires_and_colours_nothing() -> None:
    pending = replace(
        firing("GpuHot", "critical", gpu="3", uuid=GPUS[3].uuid), phase=Phase.PENDING, fires_at=NOW + 42.0
    )
    text = page(node(), pending)
    assert banner(text) == ("", "○ Pending", ["pending, fires in 42 s: GpuHot"])
    assert bodies(text, "GPUs")[0][0] == ""
    assert bodies(text, "GPUs")[0][1].endswith("○ pending, fires in 42 s GpuHot")


def test_without_rules_nothing_is_well() -> None:
    snapshot = snapshot_of(1, Instant(100.0, NOW), tuple(node()))
    assert banner(overview(context(snapshot)))[1:] == (
        "? Unknown",
        ["no rules are evaluated: what would fire is not known"],
    )


@pytest.mark.parametrize(
    ("evaluated_at", "why"),
    [(None, "not all rules have been evaluated yet"), (NOW - 120.0, "the rules are 105 s behind")],
)
def test_until_the_rules_are_evaluated_nothing_is_well(evaluated_at: float | None, why: str) -> None:
    text = page([*node(), *port("mlx5_0")], evaluated_at=evaluated_at)
    assert banner(text) == ("", "? Unknown", [f"{why}: what would fire is not known"])
    assert {tone for title in ("GPUs", "InfiniBand") for tone, _ in bodies(text, title)} == {""}
    assert "<dt>Alerts</dt><dd>not known</dd>" in text
    assert f"<p>Not known: {why}.</p>" in text
    assert "No alert is pending or firing" not in text
    fires = page(node(), firing("NodeHot", "critical"), evaluated_at=evaluated_at)
    assert banner(fires)[1:] == ("✖ Critical", ["NodeHot", f"{why}: what would fire is not known"])
    assert '<dt>Alerts</dt><dd><span class="bad">1 firing</span></dd>' in fires


def test_the_state_is_what_a_gpu_did_most_in_the_last_minute() -> None:
    def moment(wall: float, **seconds: float) -> PastMoment:
        readings = [
            reading("coldplate_gpu_state_seconds_total", value, GPUS[0], state=state)
            for state, value in seconds.items()
        ]
        frame = frame_of(tuple(readings))
        return PastMoment(wall, ((frame.layout, frame.values),))

    snapshot = snapshot_of(1, Instant(100.0, NOW), tuple(gpu(0)))
    moments = (moment(NOW - 60.0, computing=500.0, waiting=3.0), moment(NOW, computing=510.0, waiting=53.0))
    assert bodies(overview(context(snapshot, ledger=lambda: moments)), "GPUs")[0][1].split()[2] == "waiting"
    assert bodies(overview(context(snapshot, ledger=lambda: moments[:1])), "GPUs")[0][1].split()[2] == "up"


@pytest.mark.parametrize(
    ("severity", "tone", "word", "reasons"),
    [
        ("critical", "bad", "✖ Critical", ["GpuOdd"]),
        ("warning", "warn", "▲ Degraded", ["GpuOdd"]),
        ("info", "good", "✔ OK", ["all 8 GPUs answer"]),
    ],
)
def test_an_alert_makes_the_node_as_bad_as_it_is_itself_and_a_note_does_not(
    severity: str, tone: str, word: str, reasons: list[str]
) -> None:
    text = page(node(), firing("GpuOdd", severity, gpu="3", uuid=GPUS[3].uuid))
    assert banner(text) == (tone, word, reasons)


def test_the_alerts_of_a_gpu_are_in_its_row_with_their_runbooks() -> None:
    text = page(node(), firing("GpuHot", "warning", gpu="3", uuid=GPUS[3].uuid), firing("Else", "critical", gpu="3"))
    tone, first = bodies(text, "GPUs")[0]
    assert (tone, first.split()[0]) == ("warn", "3")
    assert first.endswith("▲ firing GpuHot")
    assert '<a href="/runbooks/GpuHot">GpuHot</a>' in text


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [
        (["hw_thermal_slowdown", "hw_slowdown"], "heat (hw), hw slowdown"),
        (["hw_power_brake", "hw_slowdown"], "power brake, hw slowdown"),
        (["sw_thermal_slowdown"], "heat (sw)"),
        (["sw_power_cap"], "power cap"),
        (["a_new_one"], "a_new_one"),
    ],
)
def test_reasons_for_low_clocks_are_shown_and_judged_by_no_colour(reasons: list[str], shown: str) -> None:
    readings = [each for each in gpu(2) if each.metric.name != "coldplate_gpu_throttle_active"]
    readings += [
        reading("coldplate_gpu_hw_slowdown_active", 1.0, GPUS[2])
        if each == "hw_slowdown"
        else reading("coldplate_gpu_throttle_active", 1.0, GPUS[2], reason=each)
        for each in reasons
    ]
    text = page(node(readings))
    (row,) = (each for each in bodies(text, "GPUs") if each[1].startswith("2 "))
    assert row[0] == "good"
    assert f"GHz {shown} 18 of" in row[1].replace(" ,", ",")
    assert "<small>power cap</small>" in text, "as the others are: it is no alarm"
    assert banner(text)[1] == "✔ OK"
    assert shown.split(", ", maxsplit=1)[0].replace("_", "_<wbr>") in text, "a narrow screen breaks names there alone"


@pytest.mark.parametrize(
    "values",
    [
        {"utilization_ratio": 0.05},
        {"power_watts": 150.0},
        {"power_limit_watts": 500.0},
        {"temperature_margin_celsius": -1.0},
        {"memory_temperature_celsius": 120.0},
        {"row_remap_failure": 1.0},
        {"pcie_link_width": 8.0, "pcie_link_width_max": 16.0},
    ],
)
def test_no_value_is_judged_by_the_page_itself(values: dict[str, float]) -> None:
    """The rules judge: what a site overrides or disables there is no trouble here."""
    text = page(node(gpu(4, **values)))
    assert banner(text)[1] == "✔ OK"
    assert {tone for tone, _ in bodies(text, "GPUs")} == {"good"}


def test_the_job_of_a_gpu_is_shown_and_how_many_share_it() -> None:
    """A pod has no user."""
    other, shared, pod = (
        [each for each in gpu(number, utilization_ratio=0.05) if each.metric.name != "coldplate_gpu_job_info"]
        for number in (1, 2, 3)
    )
    job = {"scheduler": "slurm", "mig": "0"}
    other.append(reading("coldplate_gpu_job_info", 1.0, GPUS[1], job_id="7", user="bob", **job))
    shared += [reading("coldplate_gpu_shared_job_info", 1.0, GPUS[2], job_id=number, **job) for number in "89"]
    pod.append(reading("coldplate_gpu_job_info", 1.0, GPUS[3], job_id="9f2c", user="", **job))
    text = page(node(other, shared, pod))
    assert banner(text)[1] == "✔ OK"
    assert [shown.rsplit(" up ", 1)[1] for _, shown in bodies(text, "GPUs")][1:4] == ["– 7 bob", "– 2 jobs", "– 9f2c"]


def test_links_are_counted_and_a_source_that_fails_is_said_to() -> None:
    down = [reading("coldplate_nvlink_up", 0.0, NvLink(GPUS[6], 18))]
    text = page(node([*gpu(6), *down]))
    assert "18 of 19 up" in text
    report = BackendReport("infiniband", Outcome.FAILED, 0.1, detail="no answer")
    tone, _, reasons = banner(page(node(), reports=(report,), ready=(False, "the last sample is 40 s old")))
    assert tone == "bad"
    assert reasons == ["not ready: the last sample is 40 s old", "infiniband cannot be read: no answer"]


def test_the_peak_of_a_port_says_over_which_time() -> None:
    text = page([*node(), *port("mlx5_0")])
    assert "<th class=n>Sent, rolling peak</th>" in text
    assert re.search(r"Rolling peak: .* within <code>sampling.window</code>, by default the last minute\.", text)
    assert "sampling.window" not in page(node()), "no port, no note"


def test_ports_of_alerts_come_first_and_disabled_and_silent_ones_are_listed() -> None:
    ports = [
        *port("mlx5_0"),
        *port("mlx5_1", up=0.0, physical=2.0),
        *port("mlx5_2", rate=25e9),
        *port("mlx5_3"),
        *port("mlx5_4", up=0.0, physical=3.0),
    ]
    slow = firing("InfinibandRateDegraded", "warning", device="mlx5_2", port="1")
    rows = bodies(page(ports, slow), "InfiniBand")
    assert [" ".join(row.split()[:3]) for _, row in rows] == [
        "mlx5_2/1 ▲ up",
        "mlx5_0/1 ✔ up",
        "mlx5_1/1 · down",
        "mlx5_3/1 ✔ up",
        "mlx5_4/1 · off",
    ]
    assert "200 Gb/s" in rows[0][1]
    assert "Down, Polling" in rows[2][1]
    gaps = tuple(
        Gap(catalogue.BY_NAME["coldplate_infiniband_port_up"], IbPort(device, "1"), reason, "no answer")
        for device, reason in (("mlx5_9", Reason.TIMEOUT), ("mlx5_8", Reason.PAUSED))
    )
    reports = (BackendReport("infiniband", Outcome.OK, 0.1, gaps=gaps),)
    assert bodies(page([], reports=reports), "InfiniBand") == [("", "mlx5_9/1 ? silent – – – – – –")]


def test_driver_memory_errors_traffic_of_ports_and_the_host_are_shown() -> None:
    ib = IbPort("mlx5_0", "1")
    readings = [
        *gpu(0),
        reading(
            "coldplate_gpu_info", 1.0, GPUS[0], slot="0000:1b:00.0", serial="1", model="H100", driver_version="580.95"
        ),
        reading("coldplate_gpu_ecc_errors_total", 3.0, GPUS[0], type="corrected", scope="volatile"),
        reading("coldplate_gpu_ecc_errors_total", 0.0, GPUS[0], type="uncorrected", scope="volatile"),
        *port("mlx5_0"),
        reading("coldplate_infiniband_port_data_transmitted_peak_bytes_per_second", 40e9, ib),
        reading("coldplate_infiniband_symbol_error_total", 12.0, ib),
        reading("coldplate_node_load1", 5.25, Node()),
        reading("coldplate_node_cpus", 224.0, Node()),
        reading("coldplate_node_memory_available_bytes", 1.5 * 2**40, Node()),
        reading("coldplate_node_memory_total_bytes", 2.0 * 2**40, Node()),
    ]
    text = page(readings)
    assert "3 corrected" in bodies(text, "GPUs")[0][1]
    assert "driver 580.95" in text
    assert "320.0 Gb/s 12" in bodies(text, "InfiniBand")[0][1]
    summary = re.sub("<[^>]*>", " ", text)
    assert "5.2  of 224 CPUs" in summary
    assert "512 of 2048 GiB" in summary


def test_a_job_is_shown_with_its_owner_its_gpus_and_what_it_has_had() -> None:
    key = {"scheduler": "slurm", "job_id": "6001"}
    facts = [
        reading("coldplate_job_info", 1.0, Node(), **key, user="ada", name="moe", account="ml", partition="gpu"),
        reading("coldplate_job_start_timestamp_seconds", NOW - 5400.0, Node(), **key),
        reading("coldplate_job_energy_joules_total", 7.2e6, Node(), **key),
    ]
    others = [each for each in node() if each.entity not in (GPUS[2], GPUS[7])]
    assert bodies(page([*others, *facts]), "Jobs") == [("", "6001 slurm moe ada ml, gpu 0–1, 3–6 1 h 30 min 2.00 kWh")]


def test_a_gpu_that_cannot_be_read_has_no_state_and_no_claim_about_throttling() -> None:
    """As on a Tegra, whose NVML offers neither utilization nor power nor reasons for low clocks."""
    text = page([reading("coldplate_gpu_up", 1.0, GPUS[0])])
    assert bodies(text, "GPUs") == [("", "0 ? – – – – – – – – – – none")]
    assert banner(text) == ("", "? Unknown", ["neither utilization nor power can be read: GPU 0"])
    known = [each for each in gpu(0) if each.metric.name != "coldplate_gpu_throttle_active"]
    assert "GHz – 18 of" in bodies(page(known), "GPUs")[0][1]
    unthrottled = reading("coldplate_gpu_throttle_active", 0.0, GPUS[0], reason="sw_power_cap")
    assert "GHz nothing 18 of" in bodies(page([*known, unthrottled]), "GPUs")[0][1]


def test_a_host_without_a_gpu_is_neither_well_nor_ill() -> None:
    reports = (BackendReport("nvml", Outcome.ABSENT, 0.1, "no driver here"),)
    none_expected = [reading("coldplate_gpus_expected", 0.0, Node())]
    assert banner(page(none_expected, reports=reports)) == ("", "? Unknown", ["no GPU here: no driver here"])


@pytest.mark.parametrize(
    ("query", "every"),
    [
        ("", "10"),
        ("refresh=2", "2"),
        ("refresh=60", "60"),
        ("refresh=0", None),
        ("refresh=1e9", "10"),
        ("refresh=<script>", "10"),
        ("&".join(["refresh=2"] * 50), "10"),
    ],
)
def test_the_page_reloads_as_often_as_requested(query: str, every: str | None) -> None:
    text = page(node(), query=query)
    found = re.search(r'<meta http-equiv="refresh" content="(\d+)">', text)
    assert (found and found[1]) == every
    chosen = re.search(r"refresh: .*?<b>(.*?)</b>", text)
    assert chosen is not None
    assert chosen[1] == ("off" if every is None else f"{every}\N{NO-BREAK SPACE}s")


def test_every_sign_of_trouble_is_a_word_too() -> None:
    """Somebody who sees no colours, or hears the page, is told as much."""
    text = page(node(lost(1), gpu(2, utilization_ratio=0.01)), firing("GpuLost", "critical"))
    for tone, content in re.findall(r'class="(?:badge )?(good|warn|bad)">(.*?)</', text):
        assert re.search(r"[A-Za-z0-9]", content), (tone, content)


def test_each_gpu_has_a_line_of_its_last_minutes_which_breaks_where_nothing_was_read() -> None:
    def moment(ago: float, *busy: float) -> PastMoment:
        readings = [reading("coldplate_gpu_utilization_ratio", each, GPUS[place]) for place, each in enumerate(busy)]
        frame = frame_of(tuple(readings))
        return PastMoment(NOW - ago, ((frame.layout, frame.values),))

    moments = (
        moment(1000.0, 1.0, 1.0),  # longer ago than the line is
        *(moment(890.0 - 15.0 * step, 1.0, 0.0) for step in range(20)),
        *(moment(290.0 - 15.0 * step, 0.5) for step in range(20)),
    )
    snapshot = snapshot_of(1, Instant(100.0, NOW), tuple(node()))
    text = overview(context(snapshot, history=lambda: moments))
    first, second, *others = re.findall(r'<svg class="line".*?</svg>', text)
    assert (first.count("<polyline"), second.count("<polyline"), others) == (2, 1, [])
    points = [point.split(",") for line in re.findall(r'points="(.*?)"', first) for point in line.split()]
    assert [float(x) for x, _ in points] == [*range(20), *range(40, 60)]
    assert {y for _, y in points[:20]} == {"1.0"}
    assert {y for _, y in points[20:]} == {"8.0"}
