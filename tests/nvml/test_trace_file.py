"""A trace or a bundle that a stranger made: whatever is wrong with it is named in one line, and costs little."""

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.backends.nvml import trace_replay
from agent.backends.nvml.trace import FIELDS, GPM
from agent.backends.nvml.trace_checks import ANSWERS
from agent.backends.nvml.trace_replay import MEMBER, MOST_BYTES, DriverTrace, DriverTraceError
from agent.backends.protocol import SourceError, SourceOptions, make_device_source
from agent.model import Instant

ROOT = Path(__file__).resolve().parents[2]

GOOD = (ROOT / "tests/nvml/traces/h100x1-580.jsonl").read_bytes()
LINES = [json.loads(line) for line in GOOD.splitlines()]


def refusal(path: Path) -> str:
    with pytest.raises(DriverTraceError) as raised:
        DriverTrace(path)
    text = str(raised.value)
    assert text.startswith(f"{path}:") and "\n" not in text and len(text) < 600
    return text.removeprefix(str(path))


def changed(folder: Path, name: str, keys: dict[str, Any]) -> tuple[Path, int]:
    """A trace whose first call of that name is another, and the number of its line."""
    number = next(n for n, line in enumerate(LINES) if line.get("call") == name)
    lines = [*LINES[:number], {**LINES[number], **keys}, *LINES[number + 1 :]]
    path = folder / "t.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path, number + 1


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("nvmlDeviceGetCount_v2", {"value": "2"}, "nvmlDeviceGetCount_v2: value: '2' is not what this call answers"),
    ("nvmlDeviceGetCount_v2", {"value": 10**9}, "value: 1000000000 is not"),
    ("nvmlDeviceGetCount_v2", {"value": None}, "value: None is not"),
    ("nvmlDeviceGetCount_v2", {"call": 7}, "is neither a call nor the end"),
    ("nvmlDeviceGetCount_v2", {"args": [[1]]}, "args: is not a list of numbers, texts and handles"),
    ("nvmlDeviceGetName", {"value": "a\nb"}, "value: 'a\\nb' is not"),
    ("nvmlDeviceGetName", {"value": "x" * 5000}, "nvmlDeviceGetName: value: 'xxx"),
    ("nvmlDeviceGetUUID", {"value": 7}, "nvmlDeviceGetUUID: value: 7 is not"),
    ("nvmlDeviceGetUUID", {"value": "x", "code": "3"}, "code: '3' is not a return code"),
    ("nvmlDeviceGetPciInfo_v3", {"value": "bus"}, "value: 'bus' is not"),
    ("nvmlDeviceGetHandleByIndex_v2", {"value": [1]}, "value: a list is not"),
    ("nvmlDeviceGetUtilizationRates", {"value": {"gpu": 1}}, "value: a mapping is not"),
    ("nvmlDeviceGetMemoryInfo_v2", {"value": 80}, "value: 80 is not"),
    ("nvmlDeviceGetTemperatureV", {"value": 10**400}, "nvmlDeviceGetTemperatureV: value: "),
    ("nvmlDeviceGetComputeRunningProcesses_v3", {"value": [[1, 2]]}, "value: a list is not"),
    ("nvmlDeviceGetGpuFabricInfoV", {"value": {"state": 3}}, "value: a mapping is not"),
    (FIELDS, {"args": []}, "args: does not begin with a handle"),
    (FIELDS, {"fields": [[1]]}, "fields: is not a list of pairs"),
    (FIELDS, {"slots": []}, "slots: is not a list of 1"),
    (FIELDS, {"slots": [[1, 10**6]]}, "slots: a list is not what field 91 answers"),
    (FIELDS, {"fields": [[83, 0]], "slots": [[1, 2**40]]}, "slots: a list is not what field 83 answers"),
    (FIELDS, {"fields": [[83, 0]], "slots": [None]}, "slots: None is not what field 83 answers"),
    (GPM, {"metrics": "all"}, "has no list of metrics"),
    (GPM, {"metrics": [2], "results": [["0", 1.0]]}, "results: a list is not a code and a value"),
]


@pytest.mark.parametrize(("call", "keys", "words"), WRONG)
def test_an_answer_that_no_driver_gives_is_named_with_its_line(
    tmp_path: Path, call: str, keys: dict[str, Any], words: str
) -> None:
    path, number = changed(tmp_path, call, keys)
    text = refusal(path)
    assert text.startswith(f":{number}: ") and words in text and text.endswith("by `coldplate doctor --bundle`")


def test_every_call_that_is_made_has_its_check() -> None:
    """Or a stranger's trace could answer it with anything."""
    source = "".join(path.read_text() for path in (ROOT / "agent/backends/nvml").glob("*.py"))
    assert set(re.findall(r'"(nvml[A-Z]\w+)"', source)) - ANSWERS.keys() == {FIELDS, GPM}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ":0: is not the end of a complete trace"),
        (GOOD.rpartition(b'{"shown"')[0], f":{len(LINES) - 1}: is not the end of a complete trace"),
        (GOOD + b'{"call": "nvmlInit"}\n', f":{len(LINES) + 1}: comes after the end of the trace"),
        (b"[" * 100_000, ":1: is not JSON: "),
        (b"[1]\n", ":1: is not a JSON object"),
        (b'{"trace": 2}\n', ":1: is not the beginning of a complete trace of format 1"),
        (b'{"trace": 1, "date": "' + b"x" * trace_replay.MOST_LINE + b'"}\n', ":1: is longer than 262144 bytes"),
        (b'{"trace": 1}\n{"shown": []}\n', ":2: shown: is not an object"),
        (b" " * (MOST_BYTES + 1), ": is larger than 4 MiB; is it the right file?"),
        (gzip.compress(b"x" * 5000, mtime=0), ": is not a bundle, or damaged: "),
        (gzip.compress(GOOD, mtime=0)[:-9], ": is not a bundle, or damaged: "),
        (b"\x1f\x8bno archive", ": cannot be read: is damaged: "),
    ],
    ids=lambda each: repr(each[:40]),
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "t").write_bytes(content)
    assert refusal(tmp_path / "t").startswith(words)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").startswith(": is not a regular file; ")
    assert refusal(tmp_path).startswith(": cannot be read: Is a directory; ")
    assert refusal(tmp_path / "none") == (
        ": cannot be read: No such file or directory; name a trace of driver calls, or a bundle"
    )


def test_a_trace_of_more_answers_than_any_node_gives_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_replay, "MOST_ANSWERS", 50)
    (tmp_path / "t").write_bytes(GOOD)
    assert "is beyond the limit of 50 answers" in refusal(tmp_path / "t")


Member = tuple[str, bytes]


def bundle_of(path: Path, *members: Member, change: Callable[[tarfile.TarInfo], None] = lambda _: None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            change(member)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_a_bundle_is_read_without_being_unpacked(tmp_path: Path) -> None:
    """The name may lead anywhere: it is only compared."""
    path = bundle_of(tmp_path / "b", ("a", b"x" * 700), ("empty", b""), (f"../../{MEMBER}", GOOD))
    assert DriverTrace(path).calls == LINES[1:-1]
    assert [each.name for each in tmp_path.iterdir()] == ["b"]
    bad = bundle_of(tmp_path / "bad", (f"coldplate-bundle/{MEMBER}", GOOD + b"nonsense\n"))
    assert refusal(bad).startswith(f": {MEMBER}:{len(LINES) + 1}: is not JSON: ")


def test_a_bundle_that_costs_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = bundle_of(tmp_path / "large", (MEMBER, b" " * (MOST_BYTES + 1)))
    assert refusal(large) == f": {MEMBER}: is larger than 4 MiB; is it the right file?"
    monkeypatch.setattr(trace_replay, "MOST_UNPACKED", 10_000)
    bomb = bundle_of(tmp_path / "bomb", ("zeros", bytes(9_000)), ("more", bytes(9_000)), (MEMBER, GOOD))
    assert refusal(bomb).startswith(": is not a bundle, or damaged: it unpacks to more than ")


def test_a_bundle_without_a_trace_says_so(tmp_path: Path) -> None:
    path = bundle_of(tmp_path / "b", ("coldplate-bundle/index.json", b"[]"))
    assert refusal(path).startswith(f": has no {MEMBER}: index.json in it says why; ")

    def link(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0

    path = bundle_of(tmp_path / "link", (MEMBER, b""), change=link)
    assert refusal(path).startswith(f": has no {MEMBER}: ")


def test_a_trace_that_is_gone_when_the_worker_opens_it_is_an_error_of_the_source(tmp_path: Path) -> None:
    source = make_device_source("nvml", SourceOptions("", 0.0, lambda: 1e9, str(tmp_path / "gone")))
    with pytest.raises(SourceError, match="gone: cannot be read: No such file"):
        source.open(Instant(1.0, 1e9))
