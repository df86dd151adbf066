"""What the agent itself wrote, once damaged: state files, recordings, traces; and what its worker says."""

import io
import json
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timezone
from pathlib import Path

from agent.backends.nvml.nvml_source import NvmlSource
from agent.backends.nvml.trace_replay import DriverTrace, DriverTraceError, ReplayDriver
from agent.backends.protocol import AbsentError, DeviceError, LaneSample, SourceError
from agent.catalogue import BY_NAME
from agent.commands.import_ import nvidia_smi_log
from agent.commands.import_.imported_sample import ImportedSample, ImportProblems, LogFormatError, SnapshotMaker
from agent.daemon.pausing import ANSWER, REQUEST, PauseError, read_answer, read_request
from agent.lib.state_files import DamagedError, seal
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, NvLink, Reason, Series
from agent.recording.file_records import MAGIC, START, RecordingError
from agent.recording.file_records import encode_record as record_of
from agent.recording.recording_file import PREAMBLE
from agent.recording.recording_reader import Recording
from agent.recording.report.observation import Judgement, recorded_observations
from agent.recording.report.report_card import TextStyle, report_card
from agent.recording.report.run_reader import read_run
from agent.sampler.inventory import FORM, Inventory
from agent.worker.decode import Decoder
from agent.worker.worker_messages import (
    MessageError,
    encode,
    encode_events,
    encode_gaps,
    encode_identity,
    encode_series,
    unseal,
)
from alerts import alert_state
from tests.lab.fuzz.target import Target
from tests.lab.fuzz.targets.kernel import NOW, check
from tests.nvml.fake_driver import Code, FakeDriver, FakeGpu, h100


def sealed(form: str, data: bytes) -> bytes:
    """The body with its right checksum, so that what is behind it is tried; without the first byte S, as it is."""
    return seal(form, data[1:]) if data.startswith(b"S") else data


def use_inventory(data: bytes, folder: Path) -> None:
    """It never raises; what cannot be used is set aside."""
    path = folder / "inventory"
    path.write_bytes(sealed(FORM, data))
    Inventory(path, lambda path, content: None)


def use_pause(data: bytes, folder: Path) -> None:
    for name, read in ((REQUEST, read_request), (ANSWER, read_answer)):
        (folder / name).write_bytes(data)
        with suppress(PauseError):
            read(folder)


def use_worker(data: bytes, folder: Path) -> None:
    """Lines of a worker, each with its right checksum where it begins with an S."""
    decoder = Decoder("synthetic")
    for line in data.split(b"\n"):
        body = b"%08x %b" % (zlib.crc32(line[1:]), line[1:]) if line.startswith(b"S") else line
        with suppress(MessageError):
            message = decoder.decode(body + b"\n")
            if isinstance(message, LaneSample):
                check(message.frame.readings)
                for each in message.frame.readings:
                    assert tuple(name for name, _ in each.series.labels) == each.metric.labels, each


def use_recording(data: bytes, folder: Path) -> None:
    path = folder / "run.coldplate"
    path.write_bytes(mended(data))
    with Recording(path) as recording:
        for snapshot in recording.snapshots():
            for each in snapshot:
                each.value + 0.0
        recording.survey()
        with suppress(RecordingError):
            run = read_run([recording])
            report_card(run, Judgement(), recorded_observations(run), TextStyle())
        assert all(problem.isprintable() for problem in recording.problems)


CUT = b"\n@@"
"""Begins a record of a recording as it is fuzzed; its kind follows, then how many bytes of it are not compressed."""


def mended(data: bytes) -> bytes:
    """The recording as a file. An input that is none already holds its records unpacked and without checksums."""
    if data.startswith(MAGIC[:4]):
        return data
    out = [START]
    for part in (b"\n" + data).split(CUT)[1:40]:
        kind, plain, payload = part[:1], part[1:2], part[2:]
        if plain != b"-":
            at = PREAMBLE.size if kind == b"B" else 0
            payload = payload[:at] + zlib.compress(payload[at:])
        out.append(record_of(kind or b"H", payload))
    return b"".join(out)


def use_trace(data: bytes, folder: Path) -> None:
    path = folder / "trace.jsonl"
    path.write_bytes(data)
    source = NvmlSource(ReplayDriver(DriverTrace(path)), wall=lambda: 1e9, timeout=0.2)
    with suppress(AbsentError, SourceError, DeviceError):
        for channel in source.open(Instant(1.0, 1e9)):
            for turn in range(2):
                for lane in Lane:
                    channel.read(lane, Instant(2.0 + turn, 1e9))
        source.events(0.0)
    source.close()


class OneGpu(FakeDriver):
    """Whatever its handle is, and its UUID by now."""

    def _gpu(self, handle: object) -> FakeGpu:
        return self.gpus[0]


class FuzzedGpu:
    """The values of a line of input, where they are of the kind that the library gives for the call."""

    def __init__(self, data: bytes) -> None:
        self.gpu = h100(0)
        self.driver = OneGpu(self.gpu)
        for line in data.split(b"\n")[:200]:
            with suppress(ValueError, RecursionError):
                self._take(json.loads(line.decode("utf-8", "replace")))

    def _take(self, said: object) -> None:
        match said:
            case [str(name), {"code": int(code)}]:
                self.gpu.calls[name] = Code(code % 1000 or 999)
            case [str(name), value] if type(value) is type(self.gpu.calls.get(name, self.driver.system.get(name))):
                table = self.gpu.calls if name in self.gpu.calls else self.driver.system
                if _alike(value, table[name]):
                    table[name] = value
            case [int(field), int(scope), int(kind), int(bits)]:
                self.gpu.fields[field, scope] = _field(kind % 9, bits % 2**64)
            case [int(metric), float(value)]:
                self.gpu.gpm[metric] = value


def _alike(value: object, known: object) -> bool:
    if isinstance(value, dict) and isinstance(known, dict):
        return value.keys() == known.keys() and all(_alike(value[key], known[key]) for key in value)
    if known == "00" * 16:  # bytes, which the driver's wrapper writes as digits
        return isinstance(value, str) and set(value) <= set("0123456789abcdef")
    return type(value) is type(known) and (not isinstance(value, int) or abs(value) < 2**64)


def _field(kind: int, bits: int):
    """A value of that type of nvmlValue_t with these bits."""
    if kind == 0:
        return kind, struct.unpack("<d", struct.pack("<Q", bits))[0]
    if kind in (4, 5):
        return kind, bits % 2**31 - 2**30
    return kind, bits % (2**32 if kind == 1 else 2**16 if kind == 6 else 2**64)


def use_driver(data: bytes, folder: Path) -> None:
    fuzzed = FuzzedGpu(data)
    with closing(NvmlSource(fuzzed.driver, wall=lambda: 1.7e9, timeout=5.0)) as source:
        for channel in source.open(NOW):
            for lane in (Lane.FAST, Lane.SLOW, Lane.COLD, Lane.FAST):
                sample = channel.read(lane, NOW)
                check(sample.readings)
                for gap in sample.gaps:
                    encode_gaps([gap])
        for event in source.events(0.0):
            encode_events(0, [event])


def use_smi(data: bytes, folder: Path) -> None:
    for zone in (timezone.utc, None):
        problems = ImportProblems("gpu.csv")
        check_ticks(nvidia_smi_log.ticks(_lines(data), zone, problems, "0"), problems, data)


def _lines(data: bytes) -> Iterator[str]:
    return iter(io.StringIO(data.decode("utf-8", "replace"), newline=""))


def check_ticks(ticks: Iterator[ImportedSample], problems: ImportProblems, data: bytes) -> None:
    maker = SnapshotMaker(1.0)
    for tick in ticks:
        assert math.isfinite(tick.wall), tick
        check(tick.readings)
        maker.make(tick)
    said = list(problems.all())
    assert len(said) < 50
    assert all(each.isprintable() and len(each) < 1000 for each in said), said


_GPU = Gpu("0", "GPU-a")
_ROWS = [encode_identity("GPU-a", GpuIdentity(_GPU, "0000:1b:00.0", "S1", "H100", (("driver_version", "580.1"),)))]
_SERIES = [
    Series(BY_NAME["coldplate_gpu_power_watts"], _GPU),
    Series(BY_NAME["coldplate_nvlink_errors_total"], NvLink(_GPU, 3), (("type", "replay"),)),
]
SAID = [encode("hello", "synthetic", _ROWS, ())] * 2 + [
    encode("layout", 0, "fast", 1, encode_series(_SERIES)),
    encode("gaps", 0, "fast", 1, encode_gaps([Gap(_SERIES[0].metric, _GPU, Reason.DENIED, "x")])),
    encode("sample", 0, "fast", [1, 1], 12.5, 0.01, 5, [412.5, 3.0], [[10, 2**30, None, None]]),
    encode("xid", 1, [["GPU-a", 79, 1.7e9, "nvml", "fallen off the bus"]]),
    encode("error", 0, "fast", 13.5, "lost", "x"),
    encode("alive", 7),
    encode("absent", "no driver"),
]
WORKER = b"\n".join(b"S" + unseal(line) for line in SAID)
WINDOWS = (
    b'S{"at": 1.7e9, "source": "nvml", "order": "little", "series": [[[["__name__", "m"]], true, 2]]}\n'
    + struct.pack("<4d", 1.0, 2.0, 5.0, float("nan"))
)
CALLS = {name: value for name, value in h100(0).calls.items() if isinstance(name, str)}
DRIVER_SAID = b"\n".join(
    json.dumps(each).encode() for each in (
        *(list(each) for each in CALLS.items() if type(each[1]) in (int, str, dict)),
        ["nvmlDeviceGetMemoryInfo_v2", {"code": 3}], ["nvmlSystemGetDriverVersion", "570.124.06"],
        [186, 0, 1, 430_000], [83, 0, 3, 12_345_678], [230, 0, 0, 2**63], [1, 55.5],
    )
)  # fmt: skip

TARGETS = (
    Target("alert-state", ("alerts/alert_state.py", "agent/lib/state_files.py"),
           lambda data, folder: list(alert_state.decode(sealed(alert_state.FORMAT, data)).all()), (), (DamagedError,),
           shown=False),
    Target("windows-archive", ("alerts/alert_state.py",),
           lambda data, folder: alert_state.decode_windows(sealed(alert_state.WINDOWS_FORMAT, data)), (WINDOWS,),
           (DamagedError,), shown=False),
    Target("inventory", ("agent/sampler/inventory.py",), use_inventory),
    Target("pause-files", ("agent/daemon/pausing.py",), use_pause),
    Target("worker-lines", ("agent/worker/decode.py",), use_worker, (WORKER,)),
    Target("recordings", ("agent/recording/file_records.py", "agent/recording/recording_reader.py",
           "agent/recording/recorded_block.py", "agent/recording/segment_definitions.py"), use_recording, (),
           (RecordingError,), named=True),
    Target("driver-traces", ("agent/backends/nvml/trace.py", "agent/backends/nvml/trace_replay.py",
           "agent/backends/nvml/trace_checks.py"), use_trace, (), (DriverTraceError,),
           files=("tests/nvml/traces/*.jsonl",), named=True, seconds=4.0),
    Target("driver-answers", ("agent/backends/nvml/arrays.py", "agent/backends/nvml/calls.py",
           "agent/backends/nvml/fields.py", "agent/backends/nvml/lane_reader.py",
           "agent/backends/nvml/gpu_enumeration.py"), use_driver, (DRIVER_SAID, b""),
           (AbsentError, SourceError, DeviceError), seconds=4.0,
           words=tuple(f'["{name}", '.encode() for name in CALLS)),
    Target("nvidia-smi-logs", ("agent/commands/import_/nvidia_smi_log.py",), use_smi, (), (LogFormatError,)),
)  # fmt: skip
