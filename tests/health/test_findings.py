"""Each fault shows as the finding that is about it, with the GPU or port; what is not known is never well."""

from collections.abc import Callable

import pytest

from agent.catalogue import BY_NAME
from agent.health.device_facts import port_facts
from agent.health.examination import CHECKS, expected_of, run_checks, view_of
from agent.health.expectations import load_expectations
from agent.health.gpu_findings import driver
from agent.health.seen_node import numbers
from agent.health.verdicts import HealthFinding, Verdict, by_rank, worst
from agent.health.xid_findings import xids
from agent.model import (
    BackendReport,
    Entity,
    Frame,
    Gap,
    Gpu,
    Layout,
    NvLink,
    Outcome,
    Reading,
    Reason,
    Snapshot,
    Xid,
    readings_of,
)

ALL = {check.name for check in CHECKS}
H100 = load_expectations("dgx-h100")


def changed(snapshot: Snapshot, change: Callable[[Reading], float | None]) -> Snapshot:
    """The snapshot with other values; None leaves a reading out."""
    frames = []
    for layout, values in snapshot.frames:
        kept = [
            (each.series, value) for each in readings_of(layout.series, values) if (value := change(each)) is not None
        ]
        frames.append(Frame(Layout(tuple(s for s, _ in kept)), tuple(v for _, v in kept)))
    return Snapshot(snapshot.sequence, snapshot.at, tuple(frames), tuple(snapshot.reports))


def of(metric: str, value: float | None, gpu: str = "3", **labels: str) -> Callable[[Reading], float | None]:
    """One metric of one GPU has this value."""

    def change(reading: Reading) -> float | None:
        entity: Entity = reading.entity
        whose = entity.gpu if isinstance(entity, NvLink) else entity
        is_it = isinstance(whose, Gpu) and whose.index == gpu and reading.metric.name == f"coldplate_{metric}"
        return value if is_it and labels.items() <= dict(reading.series.all_labels).items() else reading.value

    return change


def state(now: str) -> Callable[[Reading], float | None]:
    """The registration of GPU 3 with the fabric is in this state."""

    def change(each: Reading) -> float | None:
        mine = each.metric.name == "coldplate_gpu_fabric_state" and ("gpu", "3") in each.entity.labels
        return float(dict(each.series.labels)["state"] == now) if mine else each.value

    return change


def test_what_is_expected_of_a_link_has_the_digits_of_what_is_found(look) -> None:
    (finding,) = run_checks(view_of(look("idle")), H100, {"nvlink-speed"})
    assert finding.expected == f"{finding.found.partition(': ')[2]} per link"


@pytest.mark.parametrize(
    ("change", "name", "verdict", "found"),
    [
        (of("gpu_memory_total_bytes", 40 * 2**30), "gpu-memory", "critical", "GPU 3: 40.0 GiB"),
        (of("gpu_ecc_enabled", 0), "ecc", "critical", "GPU 3: off"),
        (of("gpu_persistence_enabled", 0), "persistence", "warning", "GPU 3: off"),
        (of("gpu_power_limit_watts", 500), "power-limit", "warning", "GPU 3: 500 W"),
        (of("gpu_pcie_link_generation_max", 3), "pcie-generation", "warning", "GPU 3: generation 3"),
        (of("gpu_pcie_link_width", 8), "pcie-width", "warning", "GPU 3: 8 lanes"),
        (of("nvlink_up", 0, link="7"), "nvlinks", "critical", "GPU 3: 17 up, 1 down"),
        (of("nvlink_up", None, link="7"), "nvlinks", "critical", "GPU 3: 17 up"),
        (of("gpu_nvlink_speed_bytes_per_second", 18 * 20e9), "nvlink-speed", "warning", "GPU 3: 20 GB/s"),
        (state("in_progress"), "fabric", "critical", "GPU 3: in progress"),
        (state("failed"), "fabric", "critical", "GPU 3: failed"),
        (of("gpu_fabric_state", None), "fabric", "unknown", "GPU 3: no answer yet"),
        (of("gpu_up", 0), "gpus-present", "critical", "GPU 3 (GPU-"),
        (of("gpu_nearest_hca_info", None), "nearest-hca", "unknown", "not known of GPU 3"),
        (of("nvlink_up", None), "nvlinks", "unknown", "GPU 3: no answer yet"),
        (of("gpu_ecc_enabled", None), "ecc", "unknown", "GPU 3: no answer yet"),
        (of("gpu_pcie_link_width", None), "pcie-width", "unknown", "GPU 3: no answer yet"),
        (of("gpu_nvlink_speed_bytes_per_second", None), "nvlink-speed", "unknown", "not known of GPU 3"),
    ],
)
def test_what_differs_is_found(look, change: Callable[[Reading], float | None], name: str, verdict: str, found: str):
    findings = run_checks(view_of(changed(look("healthy-training"), change)), H100, ALL)
    (finding,) = [each for each in findings if each.name == name]
    assert finding.verdict.value == verdict
    assert finding.found.startswith(found)
    assert finding.remedy
    others = {each.name for each in findings if each.is_met is not True} - {name, "rack-nodes"}
    assert others <= {"gpus-alike"}


def test_gpus_that_differ_from_most_are_found_without_any_expectation(look) -> None:
    view = view_of(changed(look("healthy-training"), of("gpu_memory_total_bytes", 40 * 2**30)))
    (finding,) = run_checks(view, H100, {"gpus-alike"})
    assert (finding.verdict, finding.found) == (Verdict.WARNING, "memory GPU 3: 40.0 GiB, not 79.6 GiB")


def test_a_gpu_that_was_lost_later_is_silent_for_the_reason_of_what_it_no_longer_has(look) -> None:
    seen = changed(look("healthy-training"), of("gpu_up", 0))
    gap = Gap(BY_NAME["coldplate_gpu_power_watts"], view_of(seen).gpus[3], Reason.LOST, "GPU is lost")
    reports = (BackendReport("nvml", Outcome.OK, 0.0, gaps=(gap,)),)
    (finding,) = run_checks(view_of(Snapshot(1, seen.at, seen.frames, reports)), H100, {"gpus-present"})
    assert finding.found.endswith(": lost: GPU is lost")


@pytest.mark.parametrize(("reason", "words"), [(Reason.PAUSED, []), (Reason.TIMEOUT, ["silent"])])
def test_a_port_that_does_not_answer_is_silent_but_not_that_of_a_released_driver(
    look, reason: Reason, words: list[str]
) -> None:
    seen = look("idle")
    row = BY_NAME["coldplate_infiniband_rate_bytes_per_second"]
    gap = Gap(row, next(each.entity for each in view_of(seen).all(row.name)), reason, "why")
    unread = changed(seen, lambda each: None if each.entity == gap.entity else each.value)
    view = view_of(Snapshot(1, seen.at, unread.frames, (BackendReport("x", Outcome.OK, 0.0, gaps=(gap,)),)))
    assert [each.word for each in port_facts(view) if each.port == gap.entity] == words


def test_a_gap_is_unknown_with_its_reason_and_what_no_gpu_offers_is_left_out(look) -> None:
    healthy = look("healthy-training")
    gpus = view_of(healthy).gpus
    missing = changed(healthy, lambda each: None if each.metric.name == "coldplate_gpu_ecc_enabled" else each.value)
    for reason, verdict in ((Reason.DENIED, Verdict.UNKNOWN), (Reason.UNSUPPORTED, Verdict.SKIPPED)):
        gaps = tuple(Gap(BY_NAME["coldplate_gpu_ecc_enabled"], gpu, reason, "no") for gpu in gpus)
        report = BackendReport("nvml", Outcome.OK, 0.0, gaps=gaps)
        snapshot = Snapshot(1, healthy.at, missing.frames, (report,))
        (finding,) = run_checks(view_of(snapshot), H100, {"ecc"})
        assert finding.verdict is verdict
        assert finding.found == ("GPUs 0-7: denied: no" if reason is Reason.DENIED else "not reported by these GPUs")


def test_a_node_that_has_lost_a_gpu_is_still_of_its_kind(look) -> None:
    view = view_of(look("gpu-lost"))
    expected = expected_of(view)
    assert expected.name == "dgx-h100"
    findings = {each.name: each for each in run_checks(view, expected, ALL)}
    assert findings["gpus-present"].found.startswith("GPU 3 (never identified): lost: ")
    assert findings["gpu-count"].is_met


def test_gpus_in_two_domains_are_not_one_fabric(look) -> None:
    snapshot = look("healthy-training")
    other = {}
    for layout, _ in snapshot.frames:
        for series in layout.series:
            if series.metric.name == "coldplate_gpu_fabric_info" and series.entity.index == "5":
                other[series] = type(series)(series.metric, series.entity, (("cluster_uuid", "c"), ("clique", "9")))
    frames = tuple(
        Frame(Layout(tuple(other.get(s, s) for s in layout.series)), values) for layout, values in snapshot.frames
    )
    (finding,) = run_checks(view_of(Snapshot(1, snapshot.at, frames)), H100, {"fabric"})
    assert finding.verdict is Verdict.CRITICAL
    assert "GPU 5: clique 9 of c" in finding.found
    assert "nvidia-fabricmanager" not in finding.remedy, "all its GPUs have joined; the switches divide them"


def test_a_driver_that_knows_of_no_fabric_is_not_asked_for_one(look) -> None:
    """Older ones say not_supported of a board that works."""

    def change(each: Reading) -> float:
        if each.metric.name != "coldplate_gpu_fabric_state":
            return each.value
        return float(dict(each.series.labels)["state"] == "not_supported")

    (finding,) = run_checks(view_of(changed(look("idle"), change)), H100, {"fabric"})
    assert finding.verdict is Verdict.SKIPPED


def test_ports_below_their_rate_and_ports_that_are_not_there(look) -> None:
    healthy = look("healthy-training")

    def judged(metric: str, value: float | None) -> HealthFinding:
        def change(each: Reading) -> float | None:
            mine = each.metric.name == metric and dict(each.series.all_labels).get("device") == "mlx5_2"
            return value if mine else each.value

        findings = run_checks(view_of(changed(healthy, change)), H100, {"infiniband-ports", "infiniband-rate"})
        (finding,) = [each for each in findings if each.verdict is not Verdict.OK]
        return finding

    slow = judged("coldplate_infiniband_rate_bytes_per_second", 25e9)
    assert (slow.name, slow.verdict, slow.found) == ("infiniband-rate", Verdict.WARNING, "mlx5_2/1: 200 Gb/s")
    assert judged("coldplate_infiniband_rate_bytes_per_second", None).verdict is Verdict.UNKNOWN
    gone = judged("coldplate_infiniband_port_up", None)
    assert (gone.name, gone.verdict, gone.found) == (
        "infiniband-ports",
        Verdict.CRITICAL,
        "7 of 7 ports are active; not active: none",
    )


def test_xids_are_told_by_gpu_and_are_as_bad_as_their_remedy_or_their_log_line(look) -> None:
    view = view_of(look("healthy-training"))
    assert xids(view, [Xid("0000:43:00", 31, 1.0, "kmsg")]).is_met
    finding = xids(view, [Xid("0000:43:00", 79, 1.0, "kmsg"), Xid("0000:99:00", 48, 1.0, "kmsg")])
    assert finding.verdict is Verdict.CRITICAL
    assert finding.found.startswith("GPU 1 (GPU-")
    assert finding.found.endswith(": 79 (GPU has fallen off the bus); 0000:99:00: 48 (double bit ECC error)")
    assert finding.remedy.startswith("restart the node")
    assert xids(view, None, "denied").verdict is Verdict.UNKNOWN
    finding = xids(view_of(look("idle")), [Xid("0000:43:00", 54, 1.0, "kmsg")])
    assert finding.verdict is Verdict.WARNING
    assert finding.remedy.startswith("check the power connector; ")
    view = view_of(look("idle"))
    line = "NVRM: Xid (PCI:0000:43:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x00000000)"
    finding = xids(view, [Xid("0000:43:00", 149, 1.0, "kmsg", line)])
    assert (finding.verdict, finding.remedy.partition(";")[0]) == (Verdict.CRITICAL, "reset the GPU")
    assert xids(view, [Xid("0000:43:00", 149, 1.0, "kmsg", line.replace("Fatal", "Nonfatal"))]).is_met


@pytest.mark.parametrize(
    ("outcome", "detail", "expected", "verdict"),
    [
        (Outcome.ABSENT, "libnvidia-ml.so.1 not found", "generic", Verdict.UNKNOWN),
        (Outcome.ABSENT, "libnvidia-ml.so.1 not found", "dgx-h100", Verdict.CRITICAL),
        (Outcome.FAILED, "the driver has not answered for 4 s", "generic", Verdict.CRITICAL),
        (Outcome.OK, "", "generic", Verdict.CRITICAL),
    ],
)
def test_a_driver_that_does_not_answer_is_critical_and_one_that_is_not_there_unknown(
    look, outcome: Outcome, detail: str, expected: str, verdict: Verdict
) -> None:
    view = view_of(Snapshot(1, look("idle").at, (), (BackendReport("nvml", outcome, 0.0, detail),)))
    wanted = H100 if expected == "dgx-h100" else expected_of(view)
    finding = driver(view, wanted, "nvml")
    assert finding.verdict is verdict
    assert detail in finding.found
    assert driver(view_of(look("idle")), wanted, "nvml").is_met


def test_the_whole_is_as_bad_as_its_worst_part() -> None:
    made = {each: HealthFinding(each, "", "", name=each.value) for each in Verdict}
    assert worst([]) is Verdict.OK
    assert worst([made[Verdict.SKIPPED], made[Verdict.OK]]) is Verdict.OK
    assert worst([made[Verdict.UNKNOWN], made[Verdict.OK]]) is Verdict.UNKNOWN
    assert worst([made[Verdict.UNKNOWN], made[Verdict.WARNING]]) is Verdict.WARNING
    assert worst(made.values()) is Verdict.CRITICAL
    assert [each.verdict.value for each in by_rank(made.values())] == [
        "critical",
        "warning",
        "unknown",
        "skipped",
        "ok",
    ]


def test_gpus_are_named_in_few_words() -> None:
    def named(*indexes: str) -> str:
        return numbers(Gpu(index, "") for index in indexes)

    assert named("3") == "GPU 3"
    assert named("0", "1", "2", "5", "10", "9") == "GPUs 0-2, 5, 9, 10"
    assert named("?", "1") == "GPUs 1, ?"
