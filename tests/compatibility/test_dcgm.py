"""dcgm-exporter's names: each of its default counters and of those often added, with its type, unit and labels."""

from collections.abc import Callable
from math import floor

import pytest

from agent.backends.nvml import NvmlSource
from agent.catalogue import BY_NAME
from agent.model import Frame, Gpu, Instant, Lane, Layout, Node, Series, Snapshot
from exporters.compatibility import PROFILES
from exporters.compatibility.translation import Translation
from tests.exporters.conftest import reading
from tests.frames import frame_of, snapshot_of
from tests.nvml.fake_driver import FakeDriver, a100, h100

from .conftest import ParsedPage

MIB, THROTTLED = 2**20, "coldplate_gpu_throttle_seconds_total"


def same(value: float) -> float:
    return value


def times(factor: float) -> Callable[[float], float]:
    return lambda value: float(round(value * factor))


def mebibytes(value: float) -> float:
    return float(floor(value / MIB))


CONTRACT = {
    # name: (type, our metric, its own labels, theirs of ours)
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "coldplate_gpu_clock_hertz", {"domain": "sm"}, times(1e-6)),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "coldplate_gpu_clock_hertz", {"domain": "memory"}, times(1e-6)),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "coldplate_gpu_memory_temperature_celsius", {}, same),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "coldplate_gpu_temperature_celsius", {}, same),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "coldplate_gpu_power_watts", {}, same),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "coldplate_gpu_energy_joules_total", {}, times(1000)),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "coldplate_gpu_pcie_replays_total", {}, same),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "coldplate_gpu_utilization_ratio", {}, times(100)),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "coldplate_gpu_memory_activity_ratio", {}, times(100)),
    "DCGM_FI_DEV_ENC_UTIL": ("gauge", "coldplate_gpu_encoder_utilization_ratio", {}, times(100)),
    "DCGM_FI_DEV_DEC_UTIL": ("gauge", "coldplate_gpu_decoder_utilization_ratio", {}, times(100)),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "coldplate_gpu_memory_free_bytes", {}, mebibytes),
    "DCGM_FI_DEV_FB_USED": ("gauge", "coldplate_gpu_memory_used_bytes", {}, mebibytes),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "coldplate_gpu_memory_reserved_bytes", {}, mebibytes),
    "DCGM_FI_DEV_FB_TOTAL": ("gauge", "coldplate_gpu_memory_total_bytes", {}, mebibytes),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (
        "counter", "coldplate_gpu_row_remaps_total", {"cause": "uncorrectable"}, same),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (
        "counter", "coldplate_gpu_row_remaps_total", {"cause": "correctable"}, same),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "coldplate_gpu_row_remap_failure", {}, same),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", "coldplate_gpu_utilization_ratio", {}, same),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "coldplate_gpu_tensor_active_ratio", {}, same),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", "coldplate_gpu_dram_active_ratio", {}, same),
    "DCGM_FI_PROF_SM_ACTIVE": ("gauge", "coldplate_gpu_sm_active_ratio", {}, same),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("gauge", "coldplate_gpu_sm_occupancy_ratio", {}, same),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("gauge", "coldplate_gpu_fp64_active_ratio", {}, same),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("gauge", "coldplate_gpu_fp32_active_ratio", {}, same),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("gauge", "coldplate_gpu_fp16_active_ratio", {}, same),
    "DCGM_FI_DEV_POWER_VIOLATION": ("counter", THROTTLED, {"reason": "sw_power_cap"}, times(1e9)),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("counter", "coldplate_gpu_thermal_throttle_seconds_total", {}, times(1e9)),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": ("counter", THROTTLED, {"reason": "sync_boost"}, times(1e9)),
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": ("counter", THROTTLED, {"reason": "board_limit"}, times(1e9)),
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": ("counter", THROTTLED, {"reason": "low_utilization"}, times(1e9)),
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": ("counter", THROTTLED, {"reason": "reliability"}, times(1e9)),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter", "coldplate_gpu_ecc_errors_total", {"type": "corrected"}, same),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "coldplate_gpu_ecc_errors_total", {"type": "uncorrected"}, same),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": (
        "counter", "coldplate_gpu_ecc_aggregate_errors_total", {"type": "corrected"}, same),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": (
        "counter", "coldplate_gpu_ecc_aggregate_errors_total", {"type": "uncorrected"}, same),
    **{
        f"DCGM_FI_DEV_NVLINK_{kind.upper()}_ERROR_COUNT_TOTAL": (
            "counter", "coldplate_gpu_nvlink_errors_total", {"type": kind}, same)
        for kind in ("crc_flit", "crc_data", "replay", "recovery")
    },
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("gauge", "coldplate_gpu_power_limit_watts", {}, same),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": ("gauge", "coldplate_gpu_power_instant_watts", {}, same),
}  # fmt: skip
RATES = {
    # name: (type, factor, the counters of ours whose growth it is)
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gauge", 1.0, ("coldplate_gpu_pcie_transmit_bytes_total",)),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gauge", 1.0, ("coldplate_gpu_pcie_receive_bytes_total",)),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("gauge", 1.0, ("coldplate_gpu_nvlink_transmit_bytes_total",)),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("gauge", 1.0, ("coldplate_gpu_nvlink_receive_bytes_total",)),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (
        "counter", 1e-6, ("coldplate_gpu_nvlink_transmit_bytes_total", "coldplate_gpu_nvlink_receive_bytes_total")),
}  # fmt: skip
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
OTHERS = {"DCGM_FI_DEV_XID_ERRORS", XID_COUNT}


@pytest.mark.parametrize("name", CONTRACT)
def test_a_counter_has_the_type_and_the_unit_of_the_contract(page: ParsedPage, name: str) -> None:
    kind, ours, labels, converted = CONTRACT[name]
    expected = {uuid: converted(value) for uuid, value in page.by("uuid", ours, **labels).items()}
    assert len(expected) == 8
    assert page.by("UUID", name) == pytest.approx(expected, rel=1e-12)
    assert page.types[name] == kind


def test_the_contract_has_every_name() -> None:
    assert {each.name for each in PROFILES["dcgm"].names} == CONTRACT.keys() | RATES.keys() | OTHERS


def test_labels_are_those_of_the_contract_in_its_order(page: ParsedPage) -> None:
    line = next(line for line in page.text.splitlines() if line.startswith('DCGM_FI_DEV_GPU_TEMP{gpu="3"'))
    names = [pair.partition("=")[0] for pair in line[line.index("{") + 1 : line.index("}")].split(",")]
    assert names == ["gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname",
                     "DCGM_FI_DRIVER_VERSION", "hpc_job"]  # fmt: skip
    info = next(dict(each) for each in page.samples["coldplate_gpu_info"] if dict(each)["gpu"] == "3")
    told = next(dict(each) for each in page.samples["DCGM_FI_DEV_GPU_TEMP"] if dict(each)["gpu"] == "3")
    assert told == {
        "gpu": "3", "UUID": info["uuid"], "pci_bus_id": f"0000{info['slot']}".upper(), "device": "nvidia3",
        "modelName": info["model"], "Hostname": "node-1", "hostname": "node-1",
        "DCGM_FI_DRIVER_VERSION": info["driver_version"], "hpc_job": "4711",
    }  # fmt: skip


GPU = Gpu("0", "GPU-1")


def snapshots(*counters: tuple[float, float]) -> list[Snapshot]:
    """Snapshots at these times, in which each counter of a rate has this value."""
    rows = sorted({row for _, _, rows in RATES.values() for row in rows})
    layout = Layout(tuple(Series(BY_NAME[row], GPU) for row in rows))
    return [
        Snapshot(number, Instant(mono, 1.7e9 + mono), (Frame(layout, (value,) * len(rows)),))
        for number, (mono, value) in enumerate(counters)
    ]  # fmt: skip


def values(translation: Translation, snapshot: Snapshot) -> dict[str, float]:
    return {each.metric.name: each.value for frame in translation.frames(snapshot) for each in frame.readings}


def test_a_rate_is_the_growth_over_the_last_ten_seconds_and_absent_after_one_sample() -> None:
    translation = Translation(["dcgm"], "node-1")
    steps = snapshots(*((float(second), 1e9 if second < 15 else 1e9 + (second - 14) * 2e8) for second in range(40)))
    translation.observe(steps[0])
    assert not values(translation, steps[0]).keys() & RATES.keys()
    for each in steps[1:]:
        translation.observe(each)
    found = values(translation, steps[-1])
    for name, (_, factor, rows) in RATES.items():
        assert found[name] == pytest.approx(2e8 * factor * len(rows)), name
    kinds = {each.name: each.kind.value for each in PROFILES["dcgm"].names}
    assert {name: kinds[name] for name in RATES} == {name: kind for name, (kind, _, _) in RATES.items()}


def test_a_sample_that_was_not_read_anew_does_not_count_as_standing_still() -> None:
    translation = Translation(["dcgm"], "node-1")
    first, second = snapshots((0.0, 0.0), (1.0, 5e6))
    late = Snapshot(3, Instant(2.0, 0.0), second.frames)
    for each in (first, second, late):
        translation.observe(each)
    assert values(translation, late)["DCGM_FI_PROF_PCIE_TX_BYTES"] == 5e6


def of_xids(*last: tuple[str, float]) -> Snapshot:
    told = [reading("coldplate_gpu_xid_last_timestamp_seconds", wall, GPU, xid=xid) for xid, wall in last]
    return snapshot_of(1, Instant(1.0, 1.0), [reading("coldplate_gpu_xids_total", 1.0, GPU), *told])


@pytest.mark.parametrize(
    ("last", "expected"),
    [((), {"DCGM_FI_DEV_XID_ERRORS": 0.0}), ((("79", 5.0), ("13", 9.0)), {"DCGM_FI_DEV_XID_ERRORS": 13.0}),
     ((("other", 5.0),), {})],
)  # fmt: skip
def test_the_last_xid_is_the_newest_and_0_before_the_first(
    last: tuple[tuple[str, float], ...], expected: dict[str, float]
) -> None:
    assert values(Translation(["dcgm"], "node-1"), of_xids(*last)) == {**expected, XID_COUNT: 0.0}


def xid_counts(translation: Translation, mono: float, **counts: float) -> dict[str, float]:
    """Recent XIDs by their code, where the counters have these values; without a code, under an empty one."""
    rows = [reading("coldplate_gpu_xid_errors_total", count, GPU, xid=xid[1:]) for xid, count in counts.items()]
    total = reading("coldplate_gpu_xids_total", sum(counts.values()), GPU)
    snapshot = snapshot_of(1, Instant(mono, 1.7e9 + mono), [total, *rows])
    translation.observe(snapshot)
    told = [each for frame in translation.frames(snapshot) for each in frame.readings if each.metric.name == XID_COUNT]
    assert {dict(each.labels)["window_size_in_ms"] for each in told} == {"300000"}
    return {dict(each.labels).get("xid", ""): each.value for each in told}


def test_xids_of_the_last_five_minutes_since_the_first_snapshot_count_by_code() -> None:
    translation = Translation(["dcgm"], "node-1")
    assert xid_counts(translation, 0.0) == {"": 0}
    assert xid_counts(translation, 10.0, x13=2) == {"13": 2}, "a code that is new began at 0"
    assert xid_counts(translation, 200.0, x13=3, x79=1) == {"13": 3, "79": 1}
    assert xid_counts(translation, 320.0, x13=3, x79=1) == {"13": 1, "79": 1}
    assert xid_counts(translation, 501.0, x13=3, x79=1) == {"": 0}
    translation = Translation(["dcgm"], "node-1")
    assert xid_counts(translation, 0.0, x13=7) == {"": 0}
    assert xid_counts(translation, 1.0, x13=8) == {"13": 1}


def test_serial_and_firmware_are_labels_where_they_are_asked_for() -> None:
    facts = {"slot": "0000:1b:00.0", "serial": "1654", "model": "H100", "driver_version": "580", "vbios": "96.00"}
    snapshot = snapshot_of(1, Instant(1.0, 1.0), [
        reading("coldplate_gpu_temperature_celsius", 40.0, GPU), reading("coldplate_gpu_info", 1.0, GPU, **facts)
    ])  # fmt: skip
    expected = {"DCGM_FI_DEV_SERIAL": "1654", "DCGM_FI_DEV_VBIOS_VERSION": "96.00", "DCGM_FI_DRIVER_VERSION": "580"}
    for asked in ((), ("DCGM_FI_DEV_SERIAL",), ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION")):
        (frame,) = Translation(["dcgm"], "h", "hostname", asked).frames(snapshot)
        (series,) = frame.layout.series
        names = (*asked, "DCGM_FI_DRIVER_VERSION")
        assert series.labels[-len(names) - 1 :] == (("hostname", "h"), *((name, expected[name]) for name in names))


def test_the_host_is_spelled_as_configured() -> None:
    for word, names in (("Hostname", ["Hostname"]), ("hostname", ["hostname"]), ("both", ["Hostname", "hostname"])):
        (frame,) = Translation(["dcgm"], "node-1", word).frames(of_xids())
        assert [name for name, value in frame.layout.series[0].labels if value == "node-1"] == names


def test_a_pod_and_a_mig_instance_have_their_labels() -> None:
    pod = {"scheduler": "kubernetes", "job_id": "x", "user": "", "name": "", "mig": "0", "shared": "false",
           "namespace": "ml", "pod": "train-0", "container": "main"}  # fmt: skip
    instance = {"mig_uuid": "MIG-7", "gpu_instance": "2"}
    snapshot = snapshot_of(1, Instant(1.0, 1.0), [
        reading("coldplate_gpu_memory_used_bytes", 3.5 * MIB, GPU), reading("coldplate_gpu_job_info", 1.0, GPU, **pod),
        reading("coldplate_gpu_job_info", 1.0, GPU, **{**pod, "mig": "2", "pod": "serve-1"}),
        reading("coldplate_gpu_mig_info", 1.0, GPU, **instance, compute_instance="0", profile="1g.10gb"),
        reading("coldplate_gpu_mig_memory_used_bytes", 2.0 * MIB, GPU, **instance),
        reading("coldplate_gpu_mig_tensor_active_ratio", 0.25, GPU, **instance),
    ])  # fmt: skip
    (frame,) = Translation(["dcgm"], "h", "hostname").frames(snapshot)
    common = {"gpu": "0", "UUID": "GPU-1", "device": "nvidia0", "hostname": "h"}
    its = (*tuple(common.items())[:3], ("GPU_I_PROFILE", "1g.10gb"), ("GPU_I_ID", "2"), ("hostname", "h"),
           ("container", "main"), ("namespace", "ml"), ("pod", "serve-1"))  # fmt: skip
    assert {(each.metric.name, each.value, tuple(each.labels)) for each in frame.readings} == {
        ("DCGM_FI_DEV_FB_USED", 3, tuple({**common, "container": "main", "namespace": "ml", "pod": "train-0"}.items())),
        ("DCGM_FI_DEV_FB_USED", 2, its),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.25, its),
    }  # fmt: skip


def test_labels_follow_the_job_and_nothing_is_made_anew_otherwise() -> None:
    translation = Translation(["dcgm"], "node-1")
    used = reading("coldplate_gpu_memory_used_bytes", 2.0 * MIB, GPU)
    job = {"scheduler": "slurm", "job_id": "7", "user": "", "name": "", "mig": "0", "shared": "false"}
    memory, info = frame_of([used]), frame_of([reading("coldplate_gpu_job_info", 1.0, GPU, **job)])
    with_job = translation.frames(Snapshot(1, Instant(1.0, 1.0), (memory, info)))
    again = translation.frames(Snapshot(2, Instant(2.0, 2.0), (memory, info)))
    assert again[0].layout is with_job[0].layout
    assert dict(with_job[0].layout.series[0].labels)["hpc_job"] == "7"
    shared = frame_of([reading("coldplate_gpu_job_info", 1.0, GPU, **{**job, "shared": "true"})])
    for frames in ((memory,), (memory, shared)):  # several jobs on a GPU are none
        (without,) = translation.frames(Snapshot(3, Instant(3.0, 3.0), frames))
        assert "hpc_job" not in dict(without.layout.series[0].labels)


def test_what_the_driver_says_arrives_in_its_own_units() -> None:
    """NVML's own numbers are DCGM's, for which they are converted twice; what an A100 lacks is absent."""
    found = []
    for gpu in (h100(), a100()):
        source = NvmlSource(FakeDriver(gpu), wall=lambda: 1.7e9, timeout=0.2)
        (channel,) = source.open(Instant(100.0, 1.7e9))
        frames = [frame_of(channel.read(lane, Instant(101.0, 1.7e9)).readings) for lane in (Lane.FAST, Lane.SLOW)]
        source.close()
        found.append(values(Translation(["dcgm"], "h"), Snapshot(1, Instant(101.0, 0.0), tuple(frames))))
    hopper, ampere = found
    field, call = h100().fields, h100().calls
    assert hopper["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == field[(83, 0)][1]
    assert hopper["DCGM_FI_DEV_POWER_VIOLATION"] == field[(74, 0)][1]
    assert hopper["DCGM_FI_DEV_FB_FREE"] == call["nvmlDeviceGetMemoryInfo_v2"]["free"] // MIB
    assert hopper["DCGM_FI_DEV_GPU_UTIL"] == call["nvmlDeviceGetUtilizationRates"]["gpu"]
    assert hopper["DCGM_FI_DEV_SM_CLOCK"] == call["nvmlDeviceGetClockInfo", 1]
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" not in ampere
    assert ampere["DCGM_FI_DEV_GPU_TEMP"] > 0


def test_nothing_of_the_node_itself_is_a_gpus() -> None:
    watts = reading("coldplate_node_power_watts", 1.0, Node(), source="ipmi")
    assert Translation(["dcgm"], "h").frames(snapshot_of(1, Instant(1.0, 1.0), [watts])) == ()
