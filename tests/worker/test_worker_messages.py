"""Messages survive the pipe; what is no message of ours is refused without harm."""

import json
from zlib import crc32

import pytest

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample, Unidentified
from agent.catalogue import BY_NAME
from agent.model import Gap, Gpu, GpuIdentity, IbPort, Lane, NvLink, Reason, Series, Xid
from agent.worker.decode import Decoder
from agent.worker.worker_messages import (
    GAPS,
    SERIES,
    SERIES_OF_LANE,
    Alive,
    Hello,
    MessageError,
    Refusal,
    encode,
    encode_entity,
    encode_events,
    encode_gaps,
    encode_identity,
    encode_series,
    encode_unidentified,
    unseal,
)

GPU, OTHER = Gpu("0", "GPU-a"), Gpu("1", "GPU-b")
FACTS = (("driver_version", "580.1"),)
IDENTITY = GpuIdentity(GPU, "0000:1b:00.0", "S1", "H100", FACTS)
SECOND = GpuIdentity(OTHER, "0000:2b:00.0", "S2", "H100", FACTS)
THIRD = GpuIdentity(Gpu("2", "GPU-c"), "0000:3b:00.0", "S3", "H100", FACTS)
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
CLOCK = Series(BY_NAME["coldplate_gpu_clock_hertz"], GPU, (("domain", "sm"),))
ERRORS = Series(BY_NAME["coldplate_nvlink_errors_total"], NvLink(GPU, 3), (("type", "replay"),))
ROWS = [encode_identity("GPU-a", IDENTITY), encode_identity("GPU-b", SECOND), encode_identity("fabric", None)]
LAYOUT = encode_series([POWER, ERRORS])


def hello(rows: object = ROWS, missing: object = (), source: str = "synthetic") -> bytes:
    return encode("hello", source, rows, missing)


def open_decoder(source: str = "synthetic") -> Decoder:
    decoder = Decoder(source)
    assert decoder.decode(hello(source=source)) is None
    assert isinstance(decoder.decode(hello(source=source)), Hello)
    return decoder


def ready_decoder() -> Decoder:
    decoder = open_decoder()
    decoder.decode(encode("layout", 0, "fast", 1, LAYOUT))
    return decoder


def sample(mono: float, values: object, editions: object = (1, 0), channel: int = 0, lane: str = "fast") -> bytes:
    return encode("sample", channel, lane, editions, mono, 0.001, 7, values)


def test_a_sample_arrives_as_it_was_read_with_what_the_conditioner_leaves_out() -> None:
    decoder = ready_decoder()
    gap = Gap(BY_NAME["coldplate_gpu_sm_active_ratio"], GPU, Reason.UNSUPPORTED, "no GPM")
    assert decoder.decode(encode("gaps", 0, "fast", 2, encode_gaps([gap]))) is None
    got = decoder.decode(sample(12.5, [431.25, 2**63 + 1], (1, 2)))
    assert (got.channel, got.lane, got.mono, got.calls) == ("GPU-a", Lane.FAST, 12.5, 7)
    assert [(reading.series, reading.value) for reading in got.frame.readings] == [(POWER, 431.25), (ERRORS, 2**63 + 1)]
    assert got.gaps == (gap,)
    got = decoder.decode(sample(13.5, [float("nan"), 1e19], (1, 2)))
    assert got.frame.readings[1].value == 1e19


def test_layouts_that_the_next_worker_tells_again_stay_the_same_objects() -> None:
    """What is kept for minutes then holds the series once, however many workers were started within them."""
    first = ready_decoder()
    got = first.decode(sample(1.0, [400.0, 1]))
    idle = Decoder("synthetic", first)  # one that told nothing
    for rows, number, same in ((LAYOUT, 0, True), (LAYOUT, 2, True), (LAYOUT[:1], 0, False)):
        decoder = Decoder("synthetic", idle)
        for _ in range(2):
            decoder.decode(hello(ROWS if number == 0 else ROWS[::-1]))
        decoder.decode(encode("layout", number, "fast", 1, rows))
        again = decoder.decode(sample(1.0, [400.0, 1][: len(rows)], channel=number))
        assert (again.frame.layout is got.frame.layout) is same


def test_errors_events_refusals_answers_and_processes_arrive() -> None:
    decoder = open_decoder()
    assert decoder.decode(encode("error", 0, "fast", 3.0, "lost", "GPU is lost")) == ChannelError(
        "GPU-a", Lane.FAST, 3.0, Reason.LOST, "GPU is lost"
    )
    event = Xid("GPU-a", 79, 1.5, "nvml", "")
    assert decoder.decode(encode_events(1, [event])) == (event,)
    assert decoder.decode(encode("absent", "no library")) == Refusal(True, "no library")
    assert decoder.decode(encode("alive", 12)) == Alive(12)
    assert listed(PROCESSES) == (GpuProcess(1, None, None), GpuProcess(2, 2**40, 3, 0.5))


@pytest.mark.parametrize(("channel", "entity"), [(0, GPU), (0, NvLink(GPU, 17)), (2, IbPort("mlx5_0", "1")), (2, GPU)])
def test_every_entity_that_a_worker_reads_survives(channel: int, entity: Gpu | NvLink | IbPort) -> None:
    rows = {Gpu: "coldplate_gpu_power_watts", NvLink: "coldplate_nvlink_up", IbPort: "coldplate_infiniband_port_up"}
    decoder = open_decoder()
    series = Series(BY_NAME[rows[type(entity)]], entity)
    decoder.decode(encode("layout", channel, "slow", 1, json.loads(json.dumps(encode_series([series])))))
    got = decoder.decode(sample(1.0, [1.0], channel=channel, lane="slow"))
    assert got.frame.readings[0].series == series
    assert encode_entity(entity)


# -- who is there -----------------------------------------------------------------------------------
def test_a_hello_of_the_configured_source_is_accepted_when_it_was_sent_twice() -> None:
    decoder = Decoder("synthetic")
    assert decoder.decode(hello()) is None
    with pytest.raises(MessageError):
        decoder.decode(sample(1.0, []))  # nobody is there yet
    assert decoder.decode(hello()) == Hello("synthetic", (("GPU-a", IDENTITY), ("GPU-b", SECOND), ("fabric", None)), ())
    assert decoder.decode(hello()) is None  # no news
    with pytest.raises(MessageError):
        Decoder("nvml").decode(hello())


def test_a_device_may_join_and_one_stray_message_changes_nothing() -> None:
    decoder = ready_decoder()
    missing = encode_unidentified([Unidentified("7", Reason.TIMEOUT, "silent")])
    joined = hello([*ROWS, encode_identity("GPU-c", THIRD)], missing)
    for line in (joined, hello(), joined):
        assert decoder.decode(line) is None
    assert isinstance(decoder.decode(sample(2.0, [1.0, 2])), LaneSample)
    got = decoder.decode(joined)
    assert got.channels[3] == ("GPU-c", THIRD)
    assert got.unidentified == (Unidentified("7", Reason.TIMEOUT, "silent"),)
    assert isinstance(decoder.decode(sample(3.0, [1.0, 2])), LaneSample)


@pytest.mark.parametrize(
    "rows", [[], ROWS[:2], [ROWS[1], ROWS[0], ROWS[2]], [encode_identity("GPU-c", THIRD), *ROWS[1:]]]
)
def test_no_device_leaves_and_none_becomes_another(rows: object) -> None:
    decoder = open_decoder()
    for _ in range(3):
        with pytest.raises(MessageError):
            decoder.decode(hello(rows))


def identity_row(**changes: object) -> list[object]:
    key, gpu = ROWS[0]
    assert isinstance(gpu, list)
    row = dict(zip(("index", "slot", "serial", "model", "facts"), gpu, strict=True)) | changes
    return [row.pop("key", key), list(row.values())]


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        ([], []), ([[]], []), ([["a", "b"]], []), ([[f"channel {number}", None] for number in range(81)], []),
        *(([identity_row(**changes)], []) for changes in (
            {"key": ""}, {"key": "x" * 65}, {"index": 0}, {"model": "x" * 257}, {"serial": "a\x00b"},
            {"slot": "\ud800"}, {"facts": [["gpu", "9"]]}, {"facts": [["a-b", "9"]]}, {"facts": [["__name__", "9"]]},
            {"facts": [["a", "1"], ["a", "2"]]}, {"facts": [["a", 1]]}, {"facts": [["a", "\n"]]},
            {"facts": [[f"a{number}", ""] for number in range(17)]},
        )),
        ([ROWS[0], ROWS[0]], []),
        ([ROWS[0], identity_row(key="GPU-b")], []),
        *(([ROWS[0]], missing) for missing in (
            [["0", "timeout", ""]], [["1", "timeout", ""], ["1", "lost", ""]], [["1", "tired", ""]],
            [["1", "lost", "x" * 600]],
        )),
    ],
)  # fmt: skip
def test_a_device_that_cannot_exist_is_refused(rows: object, missing: object) -> None:
    decoder = Decoder("synthetic")
    for _ in range(2):
        with pytest.raises(MessageError):
            decoder.decode(hello(rows, missing))


# -- what samples go by -----------------------------------------------------------------------------
def test_a_sample_of_another_edition_is_rejected_and_a_repeated_layout_is_the_same() -> None:
    decoder = ready_decoder()
    decoder.decode(encode("layout", 0, "fast", 9, encode_series([CLOCK, POWER])))  # stray: nobody said so
    with pytest.raises(MessageError, match="editions"):
        decoder.decode(sample(2.0, [1.0, 2]))
    decoder.decode(encode("layout", 0, "fast", 3, LAYOUT))
    first = decoder.decode(sample(3.0, [1.0, 2], (3, 0)))
    decoder.decode(encode("layout", 0, "fast", 5, LAYOUT))
    assert decoder.decode(sample(4.0, [1.0, 2], (5, 0))).frame.layout is first.frame.layout


def test_a_sample_that_is_not_newer_is_refused_and_events_that_come_twice_count_once() -> None:
    decoder = ready_decoder()
    decoder.decode(sample(1.0, [1.0, 2]))
    for times in (1.0, 0.5):
        with pytest.raises(MessageError, match="not newer"):
            decoder.decode(sample(times, [1.0, 2]))
    line = encode_events(1, [Xid("GPU-a", 79, 1.5, "nvml", "")])
    assert decoder.decode(line)
    with pytest.raises(MessageError, match="already sent"):
        decoder.decode(line)


def series_row(
    name: str = "coldplate_gpu_clock_hertz",
    entity: object = ("gpu", "0", "GPU-a"),
    labels: object = (("domain", "sm"),),
) -> list[object]:
    return [name, entity, labels]


@pytest.mark.parametrize(("channel", "lane"), [(0, "slow"), (2, "fast")])
def test_a_series_has_one_place(channel: int, lane: str) -> None:
    """Two places of one series would be two lines of one page."""
    decoder = ready_decoder()
    with pytest.raises(MessageError, match="another"):
        decoder.decode(encode("layout", channel, lane, 2, encode_series([POWER])))
    decoder.decode(encode("layout", 0, "fast", 2, encode_series([CLOCK])))
    decoder.decode(encode("layout", channel, lane, 3, encode_series([POWER])))  # it moved


def test_all_layouts_together_have_a_bound() -> None:
    decoder = Decoder("nvml")
    gpus = [GpuIdentity(Gpu(str(n), f"GPU-{n}"), f"0000:{n:02x}:00.0", "", "") for n in range(40)]
    rows = [encode_identity(each.gpu.uuid, each) for each in gpus]
    for _ in range(2):
        decoder.decode(hello(rows, source="nvml"))
    taken = 0
    with pytest.raises(MessageError, match=f"more than {SERIES} series"):
        for channel, each in enumerate(gpus):
            series = [Series(CLOCK.metric, each.gpu, (("domain", str(n)),)) for n in range(SERIES_OF_LANE)]
            decoder.decode(encode("layout", channel, "fast", 1, encode_series(series)))
            taken += len(series)
    assert taken > SERIES - SERIES_OF_LANE
    decoder.decode(
        encode("layout", 0, "fast", 2, encode_series([Series(CLOCK.metric, gpus[0].gpu, (("domain", "a"),))]))
    )
    decoder.decode(encode("layout", 39, "slow", 2, encode_series([Series(POWER.metric, gpus[39].gpu)])))


def test_all_gaps_together_have_a_bound() -> None:
    decoder = open_decoder()
    row = ["coldplate_gpu_sm_active_ratio", ["gpu", "0", "GPU-a"], "lost", ""]
    with pytest.raises(MessageError, match="512"):
        decoder.decode(encode("gaps", 0, "fast", 1, [row] * 513))
    other = ["coldplate_gpu_sm_active_ratio", ["gpu", "1", "GPU-b"], "lost", ""]
    rows = [encode_identity(f"GPU-{n}", None) for n in range(8)]
    for _ in range(2):
        decoder.decode(hello([*ROWS, *rows]))
    with pytest.raises(MessageError, match=f"more than {GAPS} gaps"):
        for channel in range(2, 11):
            for lane in ("fast", "slow", "cold"):
                decoder.decode(encode("gaps", channel, lane, 1, [other] * 512))


def test_nvml_may_miss_the_jobs_of_a_gpu_but_not_report_jobs_ports_or_node_power() -> None:
    decoder = open_decoder("nvml")
    for other in (["coldplate_infiniband_port_up", ["ib", "mlx5_0", "1"], []],
                  ["coldplate_node_power_watts", ["node"], [["source", "x"]]]):  # fmt: skip
        with pytest.raises(MessageError):
            decoder.decode(encode("layout", 2, "fast", 1, [other]))
    row = BY_NAME["coldplate_gpu_job_info"]
    assert decoder.decode(encode("gaps", 0, "slow", 1, encode_gaps([Gap(row, GPU, Reason.DENIED, "")]))) is None
    with pytest.raises(MessageError):
        labels = tuple((name, "x") for name in row.labels)
        decoder.decode(encode("layout", 0, "slow", 1, encode_series([Series(row, GPU, labels)])))


# -- processes --------------------------------------------------------------------------------------
PROCESSES = [[1, None, None, None], [2, 2**40, 3, 0.5]]


def listed(rows: object) -> object:
    return open_decoder("nvml").decode(encode("sample", 0, "slow", (0, 0), 1.0, 0.001, 7, [], rows)).processes


@pytest.mark.parametrize(
    "rows",
    [
        7, [[1, 2]], [["1", None, None, None]], [[1.5, None, None, None]], [[True, None, None, None]],
        [[-1, None, None, None]], [[2**32, None, None, None]], [[1, "x", None, None]], [[1, 2**64, None, None]],
        [[1, None, None, 1.5]], [[1, None, None, "x"]], [None], PROCESSES * 3000,
    ],
)  # fmt: skip
def test_a_list_that_is_not_a_list_of_processes_is_refused(rows: object) -> None:
    with pytest.raises(MessageError):
        listed(rows)


# -- garbage ----------------------------------------------------------------------------------------
def sealed(body: bytes) -> bytes:
    return b"%08x %b" % (crc32(body), body)


GARBAGE = [
    b"", b"null", b"[]", b"[[]]", b'["nonsense",1]', b'["sample"]', b"[" * 100_000, b"1" * 100_000, b"\xff\xfe\x00",
    b'["error",7,"fast",1,"lost",""]', b'["error",0,"fast",NaN,"lost",""]', b'["error",0,"fast",1,"lost","\\u001b"]',
    b'["alive",-1]', b'["alive","1"]', b'["absent","\\ud800"]', b'["xid",1,[["u",Infinity,1,"nvml",""]]]',
    b'["xid",0,[]]',
    *(b'["sample",%b]' % words for words in (
        b'9,"fast",[1,0],1,1,1,[1,2]', b'true,"fast",[1,0],1,1,1,[1,2]', b'0,"never",[1,0],1,1,1,[1,2]',
        b'0,"event",[0,0],1,1,1,[]', b'0,["fast"],[1,0],1,1,1,[1,2]', b'0,"fast",[1,0],1,1,1,[1]',
        b'0,"fast",[1,0],1,1,1,{"a":1,"b":2}', b'0,"fast",[1,0],-1,1,1,[1,2]',
        b'0,"fast",[1,0],Infinity,1,1,[1,2]', b'0,"fast",[1,0],"1",1,1,[1,2]', b'0,"fast",[1,0],1,-1,1,[1,2]',
        b'0,"fast",[1,0],1,1e9,1,[1,2]', b'0,"fast",[1,0],1,0,-1,[1,2]', b'0,"fast",[1,0],1,0,Infinity,[1,2]',
        b'0,"fast",[1,0],1,0,10000000,[1,2]', b'0,"fast",[1,0],1,0,0,[1,1' + b"0" * 400 + b"]",
        b'0,"fast",[1,0],1' + b"0" * 400 + b",0,0,[1,2]",
    )),
]  # fmt: skip
RATIO = "coldplate_gpu_sm_active_ratio"
GAPS_REFUSED = [
    [RATIO, ["gpu", "0", "GPU-a"], "tired", ""], [RATIO, ["gpu", "0", "GPU-a"], "lost", "x" * 513],
    [RATIO, ["gpu", "0", "GPU-a"], "lost", "\x1b[2J"], [RATIO, ["gpu", "0", "GPU-a"], "lost", 7],
    [RATIO, ["gpu", "1", "GPU-b"], "lost", ""], ["coldplate_gpu_up", ["gpu", "0", "GPU-a"], "lost", ""],
]  # fmt: skip
XIDS_REFUSED = [
    ["", 79, 1.5, "nvml", ""], ["GPU-a", -1, 1.5, "nvml", ""], ["GPU-a", 2**31, 1.5, "nvml", ""],
    ["GPU-a", True, 1.5, "nvml", ""], ["GPU-a", 79, -1.0, "nvml", ""], ["GPU-a", 79, 1e12, "nvml", ""],
    ["GPU-a", 79, 1.5, "kmsg", ""], ["GPU-a", 79, 1.5, "nvml", "x" * 600], ["G\tPU", 79, 1.5, "nvml", ""],
]  # fmt: skip
LAYOUTS_REFUSED = [
    7,
    [7],
    [series_row(name="coldplate_nonsense")],
    [series_row(name="coldplate_gpu_up", labels=())],  # the sampler's own
    [series_row(name="coldplate_gpu_xid_errors_total", labels=[["xid", "79"]])],  # the ledger's
    [series_row(name="coldplate_gpu_power_max_watts", labels=())],  # a rolling statistic
    [series_row(name="coldplate_node_memory_total_bytes", labels=())],  # the host's
    [["coldplate_infiniband_port_up", ["ib", "mlx5_0", "1"], []]],  # not this channel's
    [series_row(), series_row()],
    [series_row(labels=[["domain", str(number)]]) for number in range(1025)],
    *([series_row(labels=labels)] for labels in (
        (), [["domain", "sm"], ["domain", "sm"]], [["domain", 7]], [["domain", "x" * 257]], [["domain"]],
        [["do main", "sm"]], [["domain", "s\x1b"]],
    )),
    *([series_row(entity=entity)] for entity in (
        ["gpu", "1", "GPU-b"], ["gpu", "0", "GPU-b"], ["nvlink", "0", "GPU-a", 1], ["node"], ["gpu", "0", "GPU-a", 1],
    )),
    *([["coldplate_nvlink_up", ["nvlink", "0", "GPU-a", link], []]] for link in (-1, 64, True, "1")),
]  # fmt: skip
REFUSED = [
    *map(sealed, GARBAGE),
    *(sample(1.0, [1.0, value]) for value in (None, "1", True, [1])),
    *(sample(1.0, [1.0, 2], editions) for editions in (
        [1], [1, 0, 0], [2, 0], [1, 1], None, 1, ["1", 0])),
    *(encode("layout", 0, "fast", 2, rows) for rows in LAYOUTS_REFUSED),
    *(encode("gaps", 0, "fast", 1, [row]) for row in GAPS_REFUSED),
    *(encode("xid", 1, [row]) for row in XIDS_REFUSED),
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED, ids=[repr(line[9:79]) for line in REFUSED])
def test_what_is_no_message_is_refused_and_what_came_before_stays(line: bytes) -> None:
    decoder = ready_decoder()
    with pytest.raises(MessageError):
        decoder.decode(line)
    assert isinstance(decoder.decode(sample(1.0, [1.0, 2])), LaneSample)


@pytest.mark.parametrize("place", range(0, 54, 3))
def test_a_line_with_one_bit_turned_is_refused(place: int) -> None:
    line = sample(1.0, [1.0, 2]).rstrip(b"\n")
    for bit in range(8):
        turned = bytearray(line)
        turned[place] ^= 1 << bit
        with pytest.raises(MessageError):
            unseal(bytes(turned))
