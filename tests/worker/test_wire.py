"""Messages survive the pipe; garbage is refused without harm."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.protocol import ChannelError, LaneSample
from agent.catalogue import BY_NAME
from agent.model import Gap, Gpu, GpuIdentity, IbPort, Lane, Node, NvLink, Reason, Series, Xid
from agent.worker.wire import (
    Decoder,
    Hello,
    Refusal,
    WireError,
    encode,
    encode_entity,
    encode_gaps,
    encode_identity,
    encode_series,
)

GPU = Gpu("0", "GPU-a")
IDENTITY = GpuIdentity(GPU, "0000:1b:00.0", "S1", "H100", (("driver_version", "580.1"),))
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
ERRORS = Series(BY_NAME["coldplate_nvlink_errors_total"], NvLink(GPU, 3), (("type", "replay"),))


def open_decoder() -> Decoder:
    decoder = Decoder()
    hello = decoder.decode(
        encode("hello", "nvml", [encode_identity("GPU-a", IDENTITY), encode_identity("fabric", None)])
    )
    assert hello == Hello("nvml", (("GPU-a", IDENTITY), ("fabric", None)))
    return decoder


def test_a_sample_arrives_as_it_was_read() -> None:
    decoder = open_decoder()
    gap = Gap(BY_NAME["coldplate_gpu_sm_active_ratio"], GPU, Reason.UNSUPPORTED, "no GPM")
    assert decoder.decode(encode("layout", 0, "fast", encode_series([POWER, ERRORS]))) is None
    assert decoder.decode(encode("gaps", 0, "fast", encode_gaps([gap]))) is None
    sample = decoder.decode(encode("sample", 0, "fast", 12.5, 0.001, 7, [431.25, 2**63 + 1]))
    assert isinstance(sample, LaneSample)
    assert (sample.channel, sample.lane, sample.mono, sample.calls) == ("GPU-a", Lane.FAST, 12.5, 7)
    assert [(reading.series, reading.value) for reading in sample.readings] == [(POWER, 431.25), (ERRORS, 2**63 + 1)]
    assert sample.gaps == (gap,)


def test_errors_events_and_refusals_arrive() -> None:
    decoder = open_decoder()
    assert decoder.decode(encode("error", 0, "fast", 3.0, "lost", "GPU is lost")) == ChannelError(
        "GPU-a", Lane.FAST, 3.0, Reason.LOST, "GPU is lost"
    )
    assert decoder.decode(encode("xid", [["GPU-a", 79, 1.5, "nvml", ""]])) == (Xid("GPU-a", 79, 1.5, "nvml"),)
    assert decoder.decode(encode("absent", "no library")) == Refusal(True, "no library")


@pytest.mark.parametrize("entity", [GPU, NvLink(GPU, 17), IbPort("mlx5_0", "1"), Node()])
def test_every_entity_that_a_worker_reads_survives(entity: Gpu | NvLink | IbPort | Node) -> None:
    decoder = open_decoder()
    series = Series(POWER.metric, entity)
    decoder.decode(encode("layout", 1, "slow", json.loads(json.dumps(encode_series([series])))))
    sample = decoder.decode(encode("sample", 1, "slow", 1.0, 0.0, 0, [1.0]))
    assert isinstance(sample, LaneSample)
    assert sample.readings[0].series == series
    assert encode_entity(entity)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'["sample",0,"fast",1,1,1,[1]]',
        b'["sample",9,"fast",1,1,1,[1]]',
        b'["sample",0,"never",1,1,1,[1]]',
        b'["layout",0,"fast",[["coldplate_nonsense",["gpu","0","u"],[]]]]',
        b'["hello","nvml",[["a","b"]]]',
        b'["error",7,"fast",1,"lost",""]',
        b'["error",0,"fast",NaN,"lost",""]',
        b'["sample",0,"fast",NaN,0.1,0,[]]',
        b'["sample",0,"fast",1,0,Infinity,[]]',
        b'["sample",0,"fast",1' + b"0" * 400 + b",0,0,[]]",
        b'["xid",[["u",Infinity,1,"nvml",""]]]',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_garbage_is_refused_with_an_error_of_ours(line: bytes) -> None:
    decoder = open_decoder()
    decoder.decode(encode("layout", 0, "fast", []))
    if b"[1]" in line:
        decoder = open_decoder()
    with pytest.raises(WireError):
        decoder.decode(line)


def test_a_value_that_is_no_number_is_refused() -> None:
    decoder = open_decoder()
    decoder.decode(encode("layout", 0, "fast", encode_series([POWER])))
    for value in (None, "1", True, [1]):
        with pytest.raises(WireError):
            decoder.decode(encode("sample", 0, "fast", 1.0, 0.0, 0, [value]))


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(
    lambda tree: json.dumps(tree).encode()))  # fmt: skip
def test_no_line_does_more_harm_than_an_error(line: bytes) -> None:
    with contextlib.suppress(WireError):
        open_decoder().decode(line)
