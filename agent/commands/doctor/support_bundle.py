"""Write the bundle of `coldplate doctor --bundle`: what a person needs who helps from elsewhere, in one archive.

Names of people, hosts and devices are replaced by pseudonyms, the same in all files of one bundle. A part that fails
is named in the index and costs only itself.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from agent import __version__
from agent.commands.doctor import doctor_finding
from agent.commands.doctor.doctor_finding import DoctorFinding
from agent.commands.doctor.doctor_node import SNAPSHOT, DoctorNode, read_procfs, request_snapshot
from agent.lib.clock import clock
from agent.lib.commandline import OutputError
from agent.lib.wording import UserError, one_line
from agent.recording.redaction import Redaction
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.identity import node_name
from agent.worker.worker_process import run_module

FOLDER = "coldplate-bundle"
MAX_FILE = 64 << 20
"""Bytes of one file of the bundle; a larger one is left out, and the index says so."""
MIN_SECONDS, MAX_SECONDS = 1, 600
PRIVATE = frozenset({"node", "rack", "labels", "headers", "username", "resource", "attributes"})
"""Keys of the configuration whose texts, and those of all keys below them, are replaced."""
KEPT_WORDS = frozenset({"", "http", "https", "auto", "none"})
"""Values below those keys that are no names."""
MAX_VERSION_FILE = 4096
TRACE_SECONDS = 60.0
"""Seconds after which the process that records driver calls is killed; with 8 GPUs it takes 3."""
UNUSABLE = "the configuration cannot be used; coldplate doctor reports why"


class PartError(Exception):
    """A part of the bundle cannot be had; the text says why."""


BundlePart = tuple[str, str, Callable[[], bytes]]
"""The name of a file of the bundle, what it holds, and how it is made."""


def write_bundle(file: Path, seconds: int, node: DoctorNode, arguments: argparse.Namespace) -> None:
    """Collect everything, list it on standard output, and write it. Raises UserError if there is such a file."""
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise UserError(f"--bundle-seconds: {seconds} is not from {MIN_SECONDS} to {MAX_SECONDS}")
    try:
        archive = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except FileExistsError:
        raise UserError(f"--bundle: {file} exists; name another file, or remove this one") from None
    except OSError as error:
        raise UserError(f"--bundle: {file}: {error.strerror}; name a file in a folder that you may write to") from error
    try:
        with archive:
            key = os.urandom(32)
            redaction = Redaction(key)
            for name in {node_name(node.config), os.uname().nodename}:
                redaction.pseudonym("host", name)
            if not node.problem:
                _config(node, redaction)  # its names are recognised in the snapshot, which comes before it
            _fill(archive, _parts(seconds, node, arguments, redaction, key), redaction)
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise UserError(f"--bundle: {file}: {error.strerror}") from error
        raise
    print(f"wrote {file}; names are pseudonyms, but read it before it leaves the node")


def _fill(archive: IO[bytes], parts: list[BundlePart], redaction: Redaction) -> None:
    index: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for name, description, make in parts:
        entry: dict[str, Any] = {"file": name, "holds": description}
        try:
            content = make()
            if len(content) > MAX_FILE:
                raise PartError(f"larger than {MAX_FILE} bytes")
            files[name] = content
            index.append({**entry, "bytes": len(content)})
        except OutputError:
            raise
        except Exception as error:  # whatever is wrong with one part must not cost the others
            index.append({**entry, "missing": redaction.text(one_line(str(error))) or type(error).__name__})
    print("into the bundle go:")
    for entry in index:
        size = f"{entry['bytes']} bytes" if "bytes" in entry else f"MISSING: {entry['missing']}"
        print(f"  {entry['file']:<20} {entry['holds']} ({size})")
    print(f"  {'index.json':<20} this list", flush=True)
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in {"index.json": _json(index), **files}.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(clock().wall)
            tar.addfile(member, io.BytesIO(content))


def _parts(
    seconds: int, node: DoctorNode, arguments: argparse.Namespace, redaction: Redaction, key: bytes
) -> list[BundlePart]:
    """Return the parts in the order in which they are made: names of the first are recognised in later texts."""
    from agent.commands.doctor.check_runner import examine

    findings: list[DoctorFinding] = []

    def doctor_text() -> bytes:
        findings.extend(_without_value(finding, node.problem) for finding in examine(node))
        return "".join(f"{redaction.text(line)}\n" for line in doctor_finding.lines(findings, False)).encode()

    def doctor_json() -> bytes:
        if not findings:
            raise PartError("doctor failed")
        return _json(_redact(json.loads(doctor_finding.document(findings)), redaction))

    parts: list[BundlePart] = [
        ("snapshot.json", "the running agent's snapshot", lambda: _snapshot(node, redaction)),
        ("config.json", "the effective configuration without secrets", lambda: _config(node, redaction)),
        ("doctor.txt", "what doctor reports", doctor_text),
        ("doctor.json", "the same for programs", doctor_json),
        ("versions.json", "versions of coldplate, Python, kernel and driver", lambda: _versions(node)),
        ("recording.coldplate", f"a recording of {seconds} s", lambda: _recording(seconds, key, node, arguments)),
    ]
    if node.has_driver:
        description = "calls of the NVIDIA driver and its answers"
        parts.append(("driver-calls.jsonl", description, lambda: _driver_calls(key)))
    return parts


def _without_value(finding: DoctorFinding, problem: str) -> DoctorFinding:
    """Return a finding about a broken configuration without the value, which may be anything: only file and key."""
    if not problem or problem not in finding.found:
        return finding
    return replace(finding, found=": ".join(problem.split(": ")[:2]) + ": cannot be used")


def _snapshot(node: DoctorNode, redaction: Redaction) -> bytes:
    answer = request_snapshot(node.target, node.mono)
    if answer.status != 200 or answer.cut:
        raise PartError(f"{node.target.shown}: {SNAPSHOT} is answered with HTTP status {answer.status}")
    return _json(_redact(json.loads(answer.body), redaction))


def _redact(value: Any, redaction: Redaction, name: str = "") -> Any:
    """Return a JSON document with pseudonyms: labels by their names, and in any other text what is recognised."""
    if isinstance(value, str):
        return redaction.text(value)
    if isinstance(value, list):
        return [_redact(item, redaction) for item in value]
    if isinstance(value, dict):
        if name == "labels":
            return dict(redaction.labels(tuple((str(key), str(item)) for key, item in value.items())))
        return {key: _redact(item, redaction, key) for key, item in value.items()}
    return value


def _config(node: DoctorNode, redaction: Redaction) -> bytes:
    if node.problem:
        raise PartError(UNUSABLE)
    document = msgspec.to_builtins(node.config)
    document.pop("")  # the text of the file, with its comments
    return _json(_without_secrets(document, redaction))


def _without_secrets(value: Any, redaction: Redaction, private: bool = False) -> Any:
    """Return a part of the configuration; secrets are in files of their own, and a URL may have one in its path."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item, redaction, private or key in PRIVATE) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item, redaction, private) for item in value]
    if isinstance(value, str):
        return redaction.pseudonym("label", value) if private and value not in KEPT_WORDS else redaction.text(value)
    return value


def _versions(node: DoctorNode) -> bytes:
    system = os.uname()
    try:
        driver = read_procfs(node.procfs / "driver/nvidia/version", MAX_VERSION_FILE).strip()
    except OSError as error:
        driver = f"not known: driver/nvidia/version in procfs: {error.strerror}"
    versions = {
        "coldplate": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": f"{system.sysname} {system.release} {system.machine}",
        "driver": driver,
    }
    return _json(versions)


def _recording(seconds: int, key: bytes, node: DoctorNode, arguments: argparse.Namespace) -> bytes:
    """Return a redacted recording by the node's configuration. A signal, such as Ctrl-C, ends it early."""
    from agent.commands.record.session import RecordingSession, RecordOptions

    if node.problem:
        raise PartError(UNUSABLE)
    if sys.stderr is not None:
        print(f"recording for {seconds} s; Ctrl-C ends it early", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="coldplate-") as folder:
        path = Path(folder) / "recording.coldplate"
        options = CommandLineOptions(arguments.sysfs, arguments.procfs, folder=node.folder)
        run_options = RecordOptions(0.0, float(seconds), path, key, (), lenient=False, allow_no_gpu=True)
        messages = io.StringIO()
        with contextlib.redirect_stderr(messages):
            status = RecordingSession(node.config, options, run_options).run()
        if status != 0:
            raise PartError(messages.getvalue() or "recording failed")
        if path.stat().st_size > MAX_FILE:
            raise PartError(f"larger than {MAX_FILE} bytes; record less with --bundle-seconds")
        return path.read_bytes()


def _driver_calls(key: bytes) -> bytes:
    """Return a trace of driver calls, recorded by a process of its own: the driver may hang or crash there."""
    try:
        status, output, error = run_module("agent.commands.doctor.driver_calls", key, TRACE_SECONDS)
    except TimeoutError:
        raise PartError(f"the driver did not answer within {TRACE_SECONDS:.0f} s") from None
    if status != 0:
        reason = error.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise PartError(reason or f"its process ended with status {status}")
    return output


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
