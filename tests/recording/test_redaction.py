"""In a redacted recording nothing identifies a person or a machine, and what belongs together still does."""

import re
import zlib
from pathlib import Path

from agent.catalogue import BY_NAME, ROWS
from agent.model import BackendReport, Frame, Gap, Gpu, Instant, Layout, NvLink, Outcome, Rack, Reason, Series, Snapshot
from agent.recording.file_records import BLOCK, records
from agent.recording.recording_reader import Recording
from agent.recording.redaction import KEPT, KINDS, Redaction
from tests.recording.played import played, record

UUID = "GPU-3f5a1b7c-0d2e-4f60-8a9b-c0d1e2f30415"
GPU = Gpu("3", UUID)
SECRETS = ("3f5a1b7c", "1650000012345", "alice", "llm-secret", "node-1.example", "r12-east", "10.1.2.3", "bmc-7",
           "4711", "ns-blue", "aa:bb:cc:dd:ee:ff")  # fmt: skip


def test_every_label_of_the_catalogue_is_decided_about() -> None:
    """One that is new belongs into KEPT or KINDS of agent/recording/redaction.py."""
    labels = {label for row in ROWS for label in (*row.labels, *row.further_labels)}
    assert labels - KEPT - KINDS.keys() == set()
    assert not KEPT & KINDS.keys()


def secretive() -> Snapshot:
    info = (("slot", "0000:1b:00.0"), ("serial", "1650000012345"), ("model", "H100"))
    job = (("scheduler", "slurm"), ("job_id", "4711"), ("user", "alice"), ("name", "llm-secret"))
    place = (("namespace", "ns-blue"),)
    layout = Layout((
        Series(BY_NAME["coldplate_gpu_info"], GPU, info),
        Series(BY_NAME["coldplate_gpu_job_info"], GPU, job + place),
        Series(BY_NAME["coldplate_nvlink_up"], NvLink(GPU, 4)),
        Series(BY_NAME["coldplate_rack_power_watts"], Rack("r12-east")),
        Series(BY_NAME["coldplate_alert"], GPU, (("alertname", "Mine"), ("owner", "alice"), ("severity", "info"))),
    ))  # fmt: skip
    details = (
        f"nvmlDeviceGetX of {UUID}: job 4711 of alice on 10.1.2.3:623",
        "https://root@bmc-7.example/redfish/v1: bmc-7.example: Name or service not known",
        "/home/alice/llm-secret: Permission denied; /proc/17/environ too",
        "port of aa:bb:cc:dd:ee:ff, VBIOS 96.00.74.00.01",
    )
    gaps = tuple(Gap(BY_NAME["coldplate_nvlink_up"], NvLink(GPU, 5), Reason.DENIED, detail) for detail in details)
    report = BackendReport("nvml", Outcome.FAILED, 0.1, details[0], gaps, 3)
    return Snapshot(1, Instant(1.0, 1e9), (Frame(layout, (1.0, 1.0, 1.0, 5.0, 1.0)),), (report,))


def inflated(path: Path) -> bytes:
    """The whole content without its compression."""
    with path.open("rb") as file:
        parts = []
        for record_ in records(file, 0, path.stat().st_size):
            payload = record_.payload[20:] if record_.kind == BLOCK else record_.payload
            parts.append(zlib.decompress(payload) if record_.kind in (b"B", b"D") else payload)
    return b"\n".join(parts)


def test_nothing_that_identifies_is_in_the_file(tmp_path: Path) -> None:
    plain = inflated(record(tmp_path / "plain", [secretive()]))
    assert [secret for secret in SECRETS if secret.encode() not in plain] == []
    hidden = inflated(record(tmp_path / "hidden", [secretive()], redaction=Redaction(b"key")))
    assert [secret for secret in SECRETS if secret.encode() in hidden] == []
    for kept in (
        b"0000:1b:00.0",
        b"slurm",
        b"H100",
        b"/proc/17/environ",
        b"Permission denied",
        b"Mine",
        b"96.00.74.00.01",
    ):
        assert kept in hidden


def test_the_same_original_has_the_same_pseudonym_wherever_it_stands_by_the_key(tmp_path: Path) -> None:
    with Recording(record(tmp_path / "r", [secretive()], redaction=Redaction(b"key"))) as recording:
        (snapshot,) = recording.snapshots()
        assert recording.header.redacted
        assert recording.header.command == ("python",)
    info, job, link, *_ = (reading.series for reading in snapshot.readings)
    assert isinstance(info.entity, Gpu)
    assert isinstance(link.entity, NvLink)
    assert link.entity.gpu == info.entity == job.entity
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", info.entity.uuid)
    assert info.entity.index == "3"
    assert info.entity.uuid in snapshot.reports[0].detail
    assert dict(job.labels)["job_id"] in snapshot.reports[0].detail
    one, twin, other = Redaction(b"key"), Redaction(b"key"), Redaction(b"yek")
    assert one.pseudonym("host", "node-1") == twin.pseudonym("host", "node-1") != other.pseudonym("host", "node-1")
    assert one.pseudonym("serial", "1650000012345").isdigit()
    assert one.pseudonym("user", "") == ""


def test_nothing_is_lost_by_it(tmp_path: Path) -> None:
    snapshots = played("two-jobs", 30)
    with Recording(record(tmp_path / "r", snapshots, redaction=Redaction(b"key"))) as recording:
        for read, original in zip(recording.snapshots(), snapshots, strict=True):
            assert [reading.value for reading in read.readings] == [reading.value for reading in original.readings]
            assert len({reading.series for reading in read.readings}) == len(original)
