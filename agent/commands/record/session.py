"""One run of `coldplate record`: the command, the sampling loop beside it, and the file that it fills."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from agent import __version__
from agent.commands.record import DELAY, DURATION, MAKER, NO, OWN_FAILURE, YES, complain
from agent.commands.record.recorded_command import PASSED_ON, CommandProcesses, RecordedCommand, StartError
from agent.config import quantities
from agent.config.schema import Config, ConfigError, parse_value
from agent.daemon.hub import Hub
from agent.daemon.sampling import SamplingLoop
from agent.health.examination import ExpectationSeries
from agent.lib import logs
from agent.lib.clock import clock
from agent.lib.threads import Threads
from agent.lib.wakeups import SignalWaker
from agent.lib.wording import counted, size
from agent.model import Outcome, Snapshot
from agent.recording.file_records import RecordingError, RecordingHeader
from agent.recording.recording_file import SUFFIX, RecordingFile
from agent.recording.redaction import Redaction
from agent.wiring.command_line import CommandLineOptions, read_config, read_options, scenario_of
from agent.wiring.identity import node_name
from agent.wiring.peering import providers_of_one_run
from agent.wiring.sources import family_of, make_sampling_loop, sampled_every
from agent.wiring.start_checks import check_sources, load_choice

POLL_SECONDS = 1.0
"""Seconds between two looks at the time and the progress."""
FIRST_SECONDS = 30.0
"""Seconds beyond its duration that a recording waits for its first snapshot; a busy node's driver takes its time."""
CLOSING_SECONDS = 5.0
"""Seconds that the sampling thread has to end."""
NAMES = 100
"""Recordings of one node that may begin in the same second."""
JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID", "JOB_ID")
"""Variables in which schedulers name the job."""


class RecordOptions(Struct, frozen=True):
    """What is to be recorded. Times in seconds; `duration` None is until the end. `output` None is a default name.

    `lenient` is for commands that run with or without a recording: where none can begin, ConfigError says why.
    """

    delay: float
    duration: float | None
    output: Path | None
    key: bytes | None
    words: Sequence[str]
    lenient: bool
    allow_no_gpu: bool


def record(arguments: argparse.Namespace, words: Sequence[str], requested: str, key: bytes | None) -> int:
    """Record; the exit status. `requested` is what the environment says. Raises ConfigError."""
    if arguments.config_file is None:
        arguments.config_file = Path(os.devnull)  # the node's own file is the daemon's, and often not for users
    config = read_config(arguments)
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
    interval = parse_value("--interval", quantities.duration_between, arguments.interval, "100ms", "60s")
    delay = _parse_option("--delay", arguments.delay, DELAY, quantities.duration)
    span = _parse_option("--duration", arguments.duration, DURATION, _length)
    named = Path(requested) if requested.strip().lower() not in YES | NO else None
    run_options = RecordOptions(
        delay or 0.0, span, arguments.output or named, key, words, arguments.if_env, arguments.allow_no_gpu
    )
    options = read_options(arguments)
    check_sources(config, options.folder)  # before the command starts and a file is there
    return RecordingSession(sampled_every(interval, config), options, run_options).run()


def _parse_option(option: str, text: str | None, variable: str, parse: Callable[[str], float]) -> float | None:
    """Return the seconds that an option says, else the environment, if either does."""
    if text is not None:
        return parse_value(option, parse, text)
    text = os.environ.get(variable)
    return parse_value(variable, parse, text) if text else None


def _length(text: str) -> float:
    seconds = quantities.duration(text)
    if not seconds:
        raise ValueError(f"{text} records nothing; give how long to record, such as 10m")
    return seconds


class RecordingSession:
    """Runs the command, and records beside it."""

    def __init__(self, config: Config, options: CommandLineOptions, run_options: RecordOptions) -> None:
        self._config, self._options, self._run_options = config, options, run_options
        self._threads = Threads(time.monotonic)
        self._loop: SamplingLoop | None = None
        self._file: RecordingFile | None = None
        self._command: RecordedCommand | None = None
        self._failed = ""
        """Why recording has ended; printed when it happens."""
        self._over = False
        self._has_progress_line = False
        self._begin_at = clock().mono + run_options.delay
        self._end_at: float | None = None

    def run(self) -> int:
        """Record until the command exits, the duration elapses or a signal arrives. Return the exit status."""
        waker = SignalWaker((*PASSED_ON, signal.SIGCHLD))
        if not self._open_file():
            return OWN_FAILURE if self._run_options.words else 1
        if self._run_options.words:
            try:
                self._command = RecordedCommand(self._run_options.words)
            except StartError as error:
                self._close_file(keep_file=False)
                complain(str(error))
                return error.status
        try:
            status = self._wait(waker)
        finally:
            self._end_recording()
        return status if self._command is not None else int(bool(self._failed))

    def _wait(self, waker: SignalWaker) -> int:
        """Wait for the end. Return the command's exit status, 0 without one."""
        command = self._command
        while True:
            self._start_or_end()
            if command is None and (self._over or self._failed):
                return 0
            for number in waker.wait(POLL_SECONDS):
                if number == signal.SIGCHLD:
                    continue
                if command is None:
                    return 0
                command.pass_on(number)
            status = command.status() if command is not None else None
            if status is not None:
                return status

    def _start_or_end(self) -> None:
        """Begin and end recording when it is time."""
        now = clock().mono
        if self._loop is None and not (self._over or self._failed) and now >= self._begin_at:
            try:
                self._begin_recording()
            except ConfigError as error:  # a file that was there before the delay, say
                self._fail(str(error))
            self._end_at = None if self._run_options.duration is None else now + self._run_options.duration
        elif self._is_over(now):
            self._end_recording()
        self._threads.tend()
        self._show_progress()

    def _is_over(self, now: float) -> bool:
        if self._over or self._end_at is None:
            return False
        begun = self._file is not None and self._file.snapshots > 0
        return now >= self._end_at + (0.0 if begun else FIRST_SECONDS)

    def _begin_recording(self) -> None:
        hub, config, folder = Hub(), self._config, self._options.folder
        providers = providers_of_one_run(config, folder, clock().wall, self._threads.states)
        expectations = ExpectationSeries(lambda: hub.latest, load_choice(config, folder), family_of(config))
        providers["holding the node against expectations"] = expectations
        loop = make_sampling_loop(
            config, self._options, hub, providers, threads=self._threads, is_my_turn=lambda _: True
        )
        if self._command is not None:
            processes = CommandProcesses(self._command.pid, lambda: _worker_of(loop), loop.sampler.processes)
            loop.add_provider("following the command's processes", processes)
        hub.follow("recording", self._add_snapshot)
        self._loop = loop
        self._sampling = self._threads.begin("sampler", loop.run)

    def _add_snapshot(self, snapshot: Snapshot) -> None:
        """Take a snapshot, in the sampling thread."""
        if self._file is None or self._failed:
            return
        reason = self._no_gpu(snapshot) if self._file.snapshots == 0 else ""
        if reason:
            self._fail(f"no GPU to record: {reason}; --allow-no-gpu records the rest of the node")
            return
        try:
            self._file.add(snapshot)
        except RecordingError as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        self._failed = reason
        complain(reason)

    def _no_gpu(self, snapshot: Snapshot) -> str:
        """Return why no GPU is read, from the first snapshot; empty if one is, or if none is required."""
        if self._run_options.allow_no_gpu or self._config.backends.devices == "none":
            return ""
        devices = family_of(self._config)
        absent = (
            report for report in snapshot.reports if report.backend == devices and report.outcome is Outcome.ABSENT
        )
        return next((report.detail or "no driver" for report in absent), "")

    def _end_recording(self) -> None:
        if self._over:
            return
        self._over = True
        if self._loop is not None:
            self._loop.stop()
            if not self._sampling.join(CLOSING_SECONDS):
                complain("sampling hangs; the recording ends with the last block that was written")
                return
            self._loop.close(time.sleep)
        if self._file is not None and self._file.snapshots == 0 and not self._failed:
            ended = "it" if self._command is None else "the command"
            self._fail(f"nothing was recorded: {ended} ended before the first snapshot; no file is left")
        self._close_file(keep_file=self._file is not None and self._file.snapshots > 0)

    def _open_file(self) -> bool:
        """Create the file before the command starts: a mistake is reported before hours of work, not after."""
        options = self._run_options
        redaction = Redaction(options.key) if options.key is not None else None
        now = clock()
        node = node_name(self._config)
        header = RecordingHeader(
            __version__, node, now.wall, now.mono, self._config.sampling.fast, MAKER, tuple(options.words),
            next((os.environ[name] for name in JOBS if os.environ.get(name)), ""), scenario_of(self._config) or "",
        )  # fmt: skip
        try:
            self._file = self._create_file(header, redaction, now.wall)
        except RecordingError as error:
            if options.words and options.lenient:
                raise ConfigError(str(error)) from error
            complain(str(error))
        return self._file is not None

    def _create_file(self, header: RecordingHeader, redaction: Redaction | None, wall: float) -> RecordingFile:
        output = self._run_options.output
        if output is not None and not os.path.isdir(output):  # noqa: PTH112 - unlike Path's, it never raises
            return RecordingFile(output, header, redaction)
        node = redaction.pseudonym("host", header.node) if redaction else header.node
        name = f"coldplate-{node}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}"
        for number in range(1, NAMES):
            path = (output or Path()) / f"{name}{f'-{number}' if number > 1 else ''}{SUFFIX}"
            if not os.path.exists(path) or number == NAMES - 1:  # noqa: PTH110 - as above
                break
        return RecordingFile(path, header, redaction)

    def _close_file(self, *, keep_file: bool) -> None:
        file = self._file
        if file is None:
            return
        try:
            file.close()
        except RecordingError as error:
            self._failed = self._failed or str(error)
            complain(str(error))
        if not keep_file:
            file.path.unlink(missing_ok=True)
            return
        if self._has_progress_line:
            print(file=sys.stderr)
        names = "; names are pseudonyms, --no-redact keeps them" if self._run_options.key is not None else ""
        complain(f"recorded {counted(file.snapshots, 'snapshot')} in {file.path} ({size(file.bytes)}){names}")

    def _show_progress(self) -> None:
        """Show one line that is written again and again, where a person looks at it and no command writes beside it."""
        file = self._file
        if self._command is not None or file is None or sys.stderr is None or not sys.stderr.isatty():
            return
        self._has_progress_line = True
        remaining = self._begin_at - clock().mono
        state = (
            f"begins in {remaining:.0f} s"
            if remaining > 0
            else f"{counted(file.snapshots, 'snapshot')}, {size(file.bytes)}"
        )
        print(f"\rcoldplate: recording: {state}; Ctrl-C ends it  ", end="", file=sys.stderr, flush=True)


def _worker_of(loop: SamplingLoop) -> set[int]:
    pid = loop.supervisor.pid
    return set() if pid is None else {pid}
