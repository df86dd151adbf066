"""What the mask of the fabric's health says of a GPU: each problem, none of them, and what a driver cannot tell."""

import pynvml
import pytest

from agent.backends.nvml.arrays import ratio_in
from agent.backends.protocol import DeviceError
from agent.catalogue.links import FABRIC_HEALTH, FABRIC_PROBLEMS, QUALITY
from agent.model import Lane, NvLink, Reason
from tests.nvml.conftest import gaps, value, values
from tests.nvml.fake_driver import LOST, MISSING, U64, UNKNOWN, UNSUPPORTED, b200, h100

CALL = "nvmlDeviceGetGpuFabricInfoV"
PROBLEM = "coldplate_gpu_fabric_problem"
HEALTHY = 0b01_01_0001_10_10_10_10


def info(mask, **others):
    return {"cluster_uuid": "ab" * 16, "clique": 1, "state": 3, "status": 0, "health": mask, **others}


def read(opened, answer):
    return opened(b200(calls={CALL: answer})).read(Lane.COLD)


@pytest.mark.parametrize(
    ("shift", "width", "code", "name"),
    [
        (0, 2, 1, "degraded_bandwidth"),
        (2, 2, 1, "route_recovery"),
        (4, 2, 1, "route_unhealthy"),
        (6, 2, 1, "access_timeout_recovery"),
        (8, 4, 2, "wrong_system_guid"),
        (8, 4, 3, "wrong_chassis_serial"),
        (8, 4, 4, "no_partition"),
        (8, 4, 5, "insufficient_nvlinks"),
        (8, 4, 6, "incompatible_firmware"),
        (8, 4, 7, "invalid_location"),
        (8, 4, 8, "invalid_gpu_state"),
        (12, 2, 2, "partition_unassigned"),
        (14, 2, 2, "manager_disconnected"),
    ],
)
@pytest.mark.parametrize("state", [2, 3], ids=["joining", "joined"])
def test_each_problem_has_its_name(opened, shift, width, code, name, state):
    mask = HEALTHY & ~((1 << width) - 1 << shift) | code << shift
    sample = read(opened, info(mask, state=state))
    assert values(sample, PROBLEM) == {(each,): float(each == name) for each in FABRIC_PROBLEMS}


def test_the_bits_are_those_that_nvidia_gives_the_names():
    prefix = "NVML_GPU_FABRIC_HEALTH_MASK"
    names = (
        "DEGRADED_BW",
        "ROUTE_RECOVERY",
        "ROUTE_UNHEALTHY",
        "ACCESS_TIMEOUT_RECOVERY",
        "INCORRECT_CONFIGURATION",
        "PARTITION_ASSIGNED",
        "GFM_STATE",
    )
    for aspect, name in zip(FABRIC_HEALTH, names, strict=True):
        assert aspect.shift == getattr(pynvml, f"{prefix}_SHIFT_{name}")
        assert (1 << aspect.width) - 1 == getattr(pynvml, f"{prefix}_WIDTH_{name}")
        codes = {value for each, value in vars(pynvml).items() if each.startswith(f"{prefix}_{name}_")}
        assert codes == {0, aspect.good, *aspect.bad}


def test_unreported_or_newer_health_codes_are_neither_a_problem_nor_none(opened):
    sample = read(opened, info(0b01))
    assert values(sample, PROBLEM) == {("degraded_bandwidth",): 1.0}
    assert gaps(sample, PROBLEM) == []
    sample = read(opened, info(HEALTHY & ~0xF00 | 9 << 8))
    assert values(sample, PROBLEM)["degraded_bandwidth",] == 0.0
    assert ("no_partition",) not in values(sample, PROBLEM)
    (gap,) = gaps(sample, PROBLEM)
    assert gap.reason is Reason.MALFORMED
    assert gap.detail == "fabric health: code 9 at bit 8 is unknown to this version"


OLDER = {"cluster_uuid": "ab" * 16, "clique": 1, "state": 3, "status": 0}
"""What older recordings have."""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (info(0), Reason.UNSUPPORTED),
        (info(0, state=0), Reason.UNSUPPORTED),
        (OLDER, Reason.UNSUPPORTED),
        (MISSING, Reason.UNSUPPORTED),
        (UNKNOWN, Reason.MALFORMED),
    ],
)
def test_a_driver_that_tells_nothing_is_a_gap_and_not_healthy(opened, answer, reason):
    sample = read(opened, answer)
    assert values(sample, PROBLEM) == {}
    assert gaps(sample, PROBLEM)[0].reason is reason


# NVLink 5's own error ratios, histogram and retransmissions, and silence on GPUs that lack them.
EACH, WORST = "coldplate_nvlink_symbol_error_ratio", "coldplate_gpu_nvlink_symbol_error_highest_ratio"
BINS = "coldplate_gpu_nvlink_fec_bin_blocks_total"


@pytest.mark.parametrize(
    ("packed", "ratio"),
    [(0x109, 1e-9), (0xF0C, 15e-12), (0x500, 5.0), (0x00F, 0.0), (0xFFF, 0.0), (0x1FF, 0.0), (0x1FE, 1e-254)],
)
def test_a_ratio_is_a_mantissa_and_the_power_of_ten_that_divides_it(packed, ratio):
    assert ratio_in(packed) == ratio


def test_the_worst_link_of_a_gpu_is_shown_beside_each_link(opened):
    sample = opened(b200(fields={(222, 3): (U64, 0x20D), (222, 7): (U64, 0x80F)})).read(Lane.COLD)
    assert value(sample, WORST) == 2e-13
    links = values(sample, EACH)
    assert len(links) == 18
    assert {link: ratio for link, ratio in links.items() if ratio} == {("3",): 2e-13, ("7",): 8e-15}
    assert value(sample, "coldplate_gpu_nvlink_raw_error_highest_ratio") == 1e-9
    assert value(sample, "coldplate_gpu_nvlink_effective_error_highest_ratio") == 0.0


def test_a_link_that_tells_nothing_leaves_the_worst_of_the_others_and_all_links_none(opened):
    gpu = b200(fields={(222, 3): (U64, 0x20D)})
    bench = opened(gpu)
    bench.read(Lane.COLD)
    gpu.fields[222, 0] = UNKNOWN
    sample = bench.read(Lane.COLD)
    assert value(sample, WORST) == 2e-13
    assert len(values(sample, EACH)) == 17
    (gap,) = gaps(sample, EACH)
    assert (dict(gap.entity.labels)["link"], gap.reason) == ("0", Reason.MALFORMED)
    assert gaps(sample, WORST) == []
    gpu.fields |= {(222, link): (U64, 0x1000) for link in range(18)}
    sample = bench.read(Lane.COLD)
    assert values(sample, WORST) == {}
    (gap,) = gaps(sample, WORST)
    assert (gap.reason, gap.detail) == (Reason.MALFORMED, "NVML field 222: 4096 is not a packed ratio of 12 bits")
    gpu.fields |= {(222, link): LOST for link in range(18)}
    with pytest.raises(DeviceError, match="lost"):
        bench.read(Lane.COLD)


def test_codewords_raw_errors_and_retransmissions_are_sums_over_the_links(opened):
    gpu = b200(fields={(289, 4): (U64, 30), (290, 4): (U64, 5), (290, 5): (U64, 6), (295, 9): (U64, 7)})
    for link in range(18):
        gpu.fields |= {(235, link): (U64, 10**15), (236, link): (U64, link), (250, link): (U64, 1)}
    sample = opened(gpu).read(Lane.COLD)
    blocks = values(sample, BINS)
    assert list(blocks) == [(str(wrong),) for wrong in range(16)]
    assert (blocks["0",], blocks["1",], blocks["2",], blocks["15",]) == (18e15, 153.0, 0.0, 18.0)
    assert values(sample, "coldplate_gpu_nvlink_raw_errors_total") == {("0",): 30.0, ("1",): 11.0}
    assert value(sample, "coldplate_gpu_nvlink_plr_blocks_total") == 18_000.0
    assert value(sample, "coldplate_gpu_nvlink_plr_retried_blocks_total") == 7.0


def test_all_of_it_is_one_call_a_minute_and_none_in_between(opened):
    bench = opened(b200())
    bench.read(Lane.COLD)
    bench.driver.log.clear()
    sample = bench.read(Lane.COLD)
    assert bench.driver.log.count("nvmlDeviceGetFieldValues") == 1
    assert {row.name for row in QUALITY} <= {reading.metric.name for reading in sample.readings}
    for lane in (Lane.FAST, Lane.SLOW):
        assert not {row.name for row in QUALITY} & {reading.metric.name for reading in bench.read(lane).readings}


def test_a_generation_without_them_has_one_gap_and_a_driver_without_one_the_others(opened):
    sample = opened(h100()).read(Lane.COLD)
    assert not [reading for reading in sample.readings if reading.metric in QUALITY]
    for row in QUALITY:
        (gap,) = gaps(sample, row.name)
        assert gap.reason is Reason.UNSUPPORTED
        assert not isinstance(gap.entity, NvLink), "one for the GPU, not one for each link"
    sample = opened(b200(fields={(293, link): UNSUPPORTED for link in range(18)})).read(Lane.COLD)
    assert gaps(sample, "coldplate_gpu_nvlink_raw_error_highest_ratio")[0].reason is Reason.UNSUPPORTED
    assert value(sample, WORST) == 0.0
