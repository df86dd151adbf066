"""`coldplate pause` has the agent release the driver, for as long as was asked and no longer, and take it up again."""

import logging
import os
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from freezegun import freeze_time

from agent.commands import pause as command
from agent.daemon import pausing
from agent.daemon.pausing import (
    ANSWER,
    GPUS,
    LONGEST_SECONDS,
    QUIET_SECONDS,
    RELEASE_SECONDS,
    REQUEST,
    SHORTEST_SECONDS,
    GpuRemovals,
    PauseAnswer,
    PauseRequest,
    PauseWatch,
    boot_of,
    read_answer,
    withdraw_request,
    write_request,
)
from agent.lib.commandline import Parser
from agent.lib.threads import Threads
from agent.model import Instant
from tests import warm
from tests.daemon.conftest import Start

BOOT = "this boot"
EPOCH = 1.8e9
SLOT, OTHER = "0000:1b:00.0", "0000:43:00.0"


class Rig:
    """A watch and the moment that it is; in `folder` are requests, answers and the driver's two GPUs."""

    def __init__(self, folder: Path) -> None:
        self.now = Instant(1000.0, EPOCH)
        self.folder = folder
        self.watch = PauseWatch(None, BOOT, lambda: self.now, Threads(), GpuRemovals(folder, lambda: self.now))
        self.watch._folder = folder  # without a thread: the test looks
        for slot in (SLOT, OTHER):
            (folder / GPUS / slot).mkdir(parents=True)

    def ask(self, seconds: float, boot: str = BOOT) -> float | None:
        write_request(self.folder, PauseRequest(self.now.wall + seconds, boot))
        return self.see()

    def see(self, later: float = 0.0, wall: float | None = None) -> float | None:
        self.now = Instant(self.now.mono + later, self.now.wall + (later if wall is None else wall))
        self.watch.check_request()
        current = self.watch.current
        return None if current is None else current[0]

    def remove(self, slot: str) -> None:
        (self.folder / GPUS / slot).rmdir()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_pause_lasts_as_long_as_was_asked_unless_the_request_is_withdrawn(rig: Rig) -> None:
    assert rig.see() is None
    assert rig.ask(60.0) == EPOCH + 60
    assert rig.see(59.0) == EPOCH + 60
    assert rig.see(1.0) is None
    assert rig.ask(60.0) == EPOCH + 120
    withdraw_request(rig.folder)
    assert rig.see(1.0) is None


def test_no_set_clock_no_long_request_and_no_reboot_stretches_a_pause(rig: Rig) -> None:
    rig.ask(60.0)
    assert rig.see(61.0, wall=-3600.0) is None
    assert rig.ask(10 * LONGEST_SECONDS) is not None
    assert rig.see(LONGEST_SECONDS) is None
    assert rig.ask(60.0, boot="the one before") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"until": "soon"}', '{"until": 1e999, "boot": "this boot"}', "\xff", "a directory"]
)
def test_what_is_not_a_request_is_reported_once_and_changes_nothing(rig: Rig, caplog, text: str) -> None:
    rig.ask(60.0)
    path = rig.folder / REQUEST
    path.write_bytes(text.encode("latin-1"))
    if text == "a directory":
        path.unlink()
        path.mkdir()
    for _ in range(3):
        assert rig.see(1.0) == EPOCH + 60
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert REQUEST in record.getMessage()


def test_a_state_directory_that_is_none_is_reported_once_and_in_words(rig: Rig, caplog) -> None:
    rig.folder = rig.watch._folder = rig.folder / "file"
    rig.folder.touch()
    for _ in range(3):
        rig.see(1.0)
    assert caplog.messages == [f"coldplate pause cannot be served: {rig.folder / ANSWER}: Not a directory"]


def test_the_answer_is_of_this_request_and_says_who_holds_the_driver(rig: Rig) -> None:
    until = rig.ask(60.0)
    assert until is not None
    rig.watch.confirm(PauseAnswer(until - 1, None))  # of the request before
    rig.see()
    assert read_answer(rig.folder) is None
    for pid in (4711, None):
        rig.watch.confirm(PauseAnswer(until, pid))
        rig.see()
        assert read_answer(rig.folder) == PauseAnswer(until, pid)
    rig.see(60.0)
    assert read_answer(rig.folder) is None


def test_this_machine_has_a_boot_of_its_own(tmp_path: Path) -> None:
    assert boot_of(tmp_path) == ""
    assert len(boot_of(Path("/proc"))) == 36


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    config = tmp_path / "coldplate.yaml"
    (tmp_path / "state").mkdir()
    config.write_text(f"state_dir: {tmp_path}/state\nsampling: {{fast: 250ms, slow: 1s, cold: 2s}}\n")
    return config


def coldplate(*arguments: str) -> tuple[int | None, str, str]:
    """Status, output and errors of `coldplate pause`."""
    ended = warm.command(["pause", *arguments])
    return ended.status, ended.output.decode(), ended.error.decode()


def test_the_driver_is_released_and_taken_up_again_while_the_rest_is_served(start: Start, configured: Path) -> None:
    run = ("--scenario", "healthy-training", "--config.file", str(configured))
    daemon = start(*run)
    worker = daemon.worker_pid
    status, output, error = coldplate("--for", "1h", "--config.file", str(configured))
    assert (status, error, "released until" in output) == (0, "", True)
    assert not Path(f"/proc/{worker}").exists()
    daemon.until("the readings end", lambda: not daemon.family("coldplate_gpu_power_watts"), 10)
    names = {name for name, _ in daemon.page()}
    assert {"coldplate_driver_pause_end_timestamp_seconds", "coldplate_gpu_info"} <= names
    assert not {"coldplate_gpu_up", "coldplate_gpus_expected", "coldplate_worker_up"} & names
    assert any(name.startswith("coldplate_node_") for name in names)
    assert daemon.get("/-/healthy") == "healthy\n"
    daemon.stop()
    again = start(*run)  # in the middle of the pause
    assert "coldplate_gpu_up" not in {name for name, _ in again.page()}
    status, output, _ = coldplate("--end", "--config.file", str(configured))
    assert (status, output.count("\n")) == (0, 1)
    again.until("all are up", lambda: set(again.family("coldplate_gpu_up").values()) == {1.0}, 15)
    assert again.family("coldplate_worker_restarts_total", "") == {"": 0}
    assert "GPU is down" not in again.log.read_text() + daemon.log.read_text()


def test_without_an_agent_nothing_is_left_behind(configured: Path, monkeypatch, capsys) -> None:
    asked_until = []
    with freeze_time("2026-01-01 12:00:00") as frozen:

        def sleep(seconds: float) -> None:
            request = pausing.read_request(configured.parent / "state")
            asked_until.append(None if request is None else request.until)
            frozen.tick(seconds)

        monkeypatch.setattr(time, "sleep", sleep)
        began = time.monotonic()
        assert command.run(parsed("--for", "30m", "--config.file", str(configured))) == 1
        assert 0.0 <= time.monotonic() - began - command.ANSWER_SECONDS < 1.0
    half_past = datetime(2026, 1, 1, 12, 30, tzinfo=timezone.utc).timestamp()
    assert set(asked_until) == {half_past}
    assert "no agent with the state directory" in capsys.readouterr().err
    assert os.listdir(configured.parent / "state") == []
    assert command.run(parsed("--end", "--config.file", str(configured))) == 0
    assert capsys.readouterr().out == "there is no pause to end\n"


def test_a_worker_that_does_not_end_is_named(configured: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "RELEASE_SECONDS", 0.3)
    folder = configured.parent / "state"

    def answered(folder: Path, request: PauseRequest) -> None:
        (folder / ANSWER).write_text(f'{{"until": {request.until}, "pid": 4711}}')

    monkeypatch.setattr(pausing, "write_request", answered)
    assert command.run(parsed("--config.file", str(configured))) == 1
    assert "process 4711" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [ANSWER]


def parsed(*arguments: str):
    parser = Parser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


# A GPU that somebody unbinds: the driver is released when the kernel log says that it waits, and for how long.


def test_it_ends_when_the_gpu_has_left_the_driver_but_not_at_once(rig: Rig) -> None:
    assert rig.see() is None
    rig.watch.removals.announce(SLOT)
    assert rig.see() == EPOCH + RELEASE_SECONDS
    rig.remove(SLOT)
    assert rig.see(SHORTEST_SECONDS - 1) == EPOCH + RELEASE_SECONDS
    assert rig.see(1.0) is None
    rig.remove(OTHER)
    rig.watch.removals.announce(OTHER)  # where procfs does not show the GPU, its absence says nothing
    assert rig.see(RELEASE_SECONDS - 1) is not None
    assert rig.see(1.0) is None


def test_a_gpu_that_others_keep_open_costs_a_minute_and_no_more(rig: Rig, caplog) -> None:
    rig.watch.removals.announce(SLOT)
    assert rig.see(RELEASE_SECONDS - 1) is not None
    assert rig.see(1.0) is None
    for _ in range(3):
        rig.watch.removals.announce(SLOT)
        assert rig.see(1.0) is None
    warned = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert all(SLOT in text for text in warned)
    rig.see(QUIET_SECONDS)
    rig.watch.removals.announce(SLOT)
    assert rig.see() is not None


def test_each_of_several_gpus_has_its_own_minute_and_a_pause_on_request_comes_first(rig: Rig) -> None:
    rig.watch.removals.announce(SLOT)
    assert rig.watch.current is not None and SLOT in rig.watch.current[1]
    rig.see(40.0)
    rig.watch.removals.announce(OTHER)
    assert rig.see(40.0) == EPOCH + 40 + RELEASE_SECONDS
    rig.ask(600.0)
    assert rig.watch.current == (EPOCH + 680, "coldplate pause has released the driver")
    assert read_answer(rig.folder) is None, "only a pause on request is answered"
    withdraw_request(rig.folder)
    assert rig.see(20.0) is None
