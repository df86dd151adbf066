"""What is in recordings, for people; and copies of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agent.commands.record import LEFT_OUT, MAKER, complain
from agent.config import quantities
from agent.lib.wording import age, counted, one_line, size, utc
from agent.model import Entity, Gpu, Layout
from agent.recording.file_records import RecordingError
from agent.recording.recording_file import RecordingFile
from agent.recording.recording_reader import Recording, distinct_files
from agent.recording.redaction import Redaction


def print_info(paths: Sequence[Path]) -> int:
    """Print what is in each file; 1 if one of them is no recording."""
    status = 0
    for path in paths:
        try:
            with Recording(path) as recording:
                for name, text in _facts(recording):
                    print(f"{name + ':':12} {one_line(text)}")
                for problem in recording.problems:
                    complain(problem)
        except RecordingError as error:
            complain(str(error))
            status = 1
        if path is not paths[-1]:
            print()
    return status


def _facts(recording: Recording) -> list[tuple[str, str]]:
    spans = recording.survey()
    header = recording.header
    walls = [wall for span in spans if span.count for wall in (span.first, span.last)]
    count = sum(span.count for span in spans)
    nodes = sorted({span.header.node for span in spans})
    facts = [("file", f"{recording.path} ({size(recording.path.stat().st_size)})")]
    facts.append(("nodes", f"{len(nodes)}: {', '.join(nodes)}") if len(nodes) > 1 else ("node", header.node))
    facts.append(("made by", f"{header.maker}, coldplate {header.coldplate}"))
    facts += [(name, text) for name, text in (("command", " ".join(header.command)), ("job", header.job)) if text]
    if header.scenario:
        facts.append(("synthetic", f"scenario {header.scenario}: nothing in it is real"))
    if walls:
        first, last = min(walls), max(walls)
        facts.append(("time", f"{utc(first)} to {utc(last)} ({age(round(last - first + header.interval))})"))
    facts.append(("snapshots", f"{count}, one every {quantities.duration_text(header.interval)}"))
    facts += _series_and_gpus(recording)
    if header.maker == MAKER:
        facts.append(("left out", LEFT_OUT))
    facts.append(("redacted", "yes" if header.redacted else "no: it names devices, hosts, users and jobs"))
    return facts


def _series_and_gpus(recording: Recording) -> list[tuple[str, str]]:
    """Return the most series of a snapshot, and every GPU that any snapshot has, as `coldplate report` counts them."""
    layouts: set[tuple[str, Layout]] = set()
    models: dict[tuple[str, Entity], str] = {}
    most_series = 0
    for block in recording.blocks():
        most_series = max(most_series, block.most_series)
        node = block.header.node
        for layout in (track.layout for track in block.tracks if (node, track.layout) not in layouts):
            layouts.add((node, layout))
            of_gpus = [series for series in layout.series if isinstance(series.entity, Gpu)]
            infos = [series for series in of_gpus if series.metric.name == "coldplate_gpu_info"]
            for series in of_gpus:
                models.setdefault((node, series.entity), "")  # a log of nvidia-smi may not name the model
            models.update(((node, series.entity), dict(series.labels).get("model", "")) for series in infos)
    counts = Counter(model or "GPU of unknown model" for model in models.values())
    gpus = ", ".join(f"{count} x {model}" for model, count in counts.items())
    return [("series", str(most_series)), ("GPUs", gpus or "none")]


def copy_recordings(paths: Sequence[Path], output: Path | None, key: bytes | None) -> int:
    """Write what is whole of recordings into one; 1 if that cannot be done."""
    if output is None:
        complain("--copy needs -o FILE")
        return 2
    status, file = 0, None
    redaction = Redaction(key) if key is not None else None
    try:
        for path in distinct_files(paths, complain):
            with Recording(path) as recording:
                file = _append(recording, output, file, redaction)
                for problem in recording.problems:
                    complain(problem)
    except RecordingError as error:
        complain(str(error))
        status = 1
    if file is None and not status:
        complain("nothing was copied: there is no whole snapshot")
        return 1
    if file is not None:
        file.close()
        complain(f"copied {counted(file.snapshots, 'snapshot')} to {file.path} ({size(file.bytes)})")
    return status


def _append(
    recording: Recording, output: Path, file: RecordingFile | None, redaction: Redaction | None
) -> RecordingFile | None:
    before = None
    for header, snapshot in recording.recorded():
        if file is None or header is not before:
            before = header
            mine = None if header.redacted else redaction
            if file is None:
                file = RecordingFile(output, header, mine)
            else:
                file.continue_as(header, mine)
        file.add(snapshot)
    return file
