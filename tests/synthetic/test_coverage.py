"""A synthetic node shows every row that such a machine would, and says what it does not offer."""

from __future__ import annotations

import pytest

from agent.backends.protocol import BackendSample
from agent.backends.synthetic.machines import TOPOLOGIES
from agent.backends.synthetic.supported_series import measured, port_offered
from agent.catalogue import BY_NAME, ROWS, nvlink_quality
from agent.catalogue.gpu import MIG
from agent.catalogue.jobs import FACTS
from agent.model import Gpu, IbPort, Lane, NvLink, Reason
from agent.worker.decode import rows_of

NOT_ON_A_DGX_H100 = {
    "coldplate_gpu_module_power_watts": "Grace-based boards only",
    "coldplate_nvlink_receive_errors_total": "from Blackwell on",
    "coldplate_nvlink_symbol_errors_total": "from Blackwell on",
    "coldplate_nvlink_effective_errors_total": "from Blackwell on",
    **{row.name: "from Blackwell on" for row in nvlink_quality.ROWS},
    **{row.name: "MIG is off on synthetic GPUs" for row in MIG if measured(row)},
}


def seen_on(node) -> dict[str, set[Lane]]:
    seen: dict[str, set[Lane]] = {}
    for channel in node.channels:
        for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
            sample: BackendSample = channel.read(lane, node.instant(30.0))
            for reading in sample.readings:
                seen.setdefault(reading.metric.name, set()).add(lane)
    return seen


def test_a_dgx_h100_shows_every_row_that_it_offers(play):
    seen = seen_on(play("healthy-training"))
    wanted = {row.name for row in ROWS if row.entity in (Gpu, NvLink) and measured(row)}
    wanted |= {row.name for row in ROWS if row.entity is IbPort and port_offered(row)}
    assert wanted - set(seen) == set(NOT_ON_A_DGX_H100)
    jobs = {row.name for row in FACTS if row.labels != ("problem",)}
    assert set(seen) - wanted == {"coldplate_node_power_watts", "coldplate_gpu_job_memory_used_bytes"} | jobs


def test_rows_are_shown_in_their_own_lane(play):
    for name, lanes in seen_on(play("healthy-training")).items():
        clock = name == "coldplate_gpu_clock_hertz"  # the catalogue moves three of its domains to the slow lane
        assert lanes == ({Lane.FAST, Lane.SLOW} if clock else {BY_NAME[name].lane})


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_what_a_machine_lacks_is_a_gap_and_what_it_has_is_not(play, write, topology):
    node = play(write(f"{{description: d, topology: {topology}}}"))
    machine = TOPOLOGIES[topology]
    readings, gaps = set(), {}
    for found, missing in node.all_samples(10.0):
        readings |= {reading.metric.name for reading in found}
        gaps.update({gap.metric.name: gap for gap in missing})
    assert not readings & set(gaps)
    assert all(gap.reason is Reason.UNSUPPORTED and gap.detail for gap in gaps.values())
    assert ("coldplate_gpu_tensor_active_ratio" in readings) == machine.gpm
    assert ("coldplate_nvlink_up" in readings) == (machine.nvlinks > 0)
    assert ("coldplate_gpu_module_power_watts" in readings) == (machine.module_power > 0)
    assert len(node.channels) == machine.gpus + 1


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_the_worker_may_report_every_row_that_a_node_shows(play, write, topology):
    """What it may not report is taken for garbage, and costs the lane of all that the channel shows."""
    node = play(write(f"{{description: d, topology: {topology}, faults: [{{kind: sxid, code: 12028}}]}}"))
    assert set(seen_on(node)) <= set(rows_of("synthetic"))


def test_identities_look_like_real_ones_and_are_the_same_in_every_process(play):
    first, second = play("idle"), play("idle")
    identities = [channel.identity for channel in first.channels[:-1]]
    assert [channel.identity for channel in second.channels[:-1]] == identities
    assert len({identity.gpu.uuid for identity in identities}) == 8
    assert identities[0].slot == "0000:1b:00.0"
    assert first.fabric.identity is None


def test_a_blackwell_link_has_the_error_counters_of_its_own_kind(play, write):
    node = play(write("{description: d, topology: gb200-tray}"))
    values = node.values(0, 10.0, Lane.SLOW)
    assert {"nvlink_errors_total/0/recovery_failed", "nvlink_errors_total/recovery_failed"} <= set(values)
    assert {"nvlink_symbol_errors_total/0", "nvlink_receive_errors_total/0"} <= set(values)
    assert not {"nvlink_errors_total/0/crc", "nvlink_errors_total/crc_flit"} & set(values)
    cold = node.values(0, 10.0, Lane.COLD)
    assert {
        "nvlink_symbol_error_highest_ratio",
        "nvlink_symbol_error_ratio/0",
        "nvlink_fec_bin_blocks_total/15",
    } <= set(cold)
    assert "fabric_info/9a6f1c52-3d0b-4e8e-9a41-5f27c0d1be64/0" in node.values(0, 10.0, Lane.COLD)


def test_series_are_made_once(play):
    node = play("healthy-training")
    for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
        for channel in node.channels:
            first, second = channel.read(lane, node.instant(40.0)), channel.read(lane, node.instant(41.0))
            assert all(a.series is b.series for a, b in zip(first.readings, second.readings, strict=True))
