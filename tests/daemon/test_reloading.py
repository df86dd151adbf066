"""A reload: everybody who asked is told how it went, and what goes wrong leaves what runs in force."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from agent.config.schema import ConfigError
from agent.daemon.reloading import LastReload, Reloader, WebFileRejectedError
from agent.lib.threads import Threads
from agent.model import Instant
from tests.daemon.standin import Ears
from tests.waiting import wait_until

STARTED = 1000.0


class Rig:
    def __init__(self) -> None:
        self.last = LastReload(STARTED)
        self.notifier = Ears()
        self.wall = 5000.0
        self.reads = 0
        self.work: Callable[[], None] = lambda: None
        self.restarting: list[str] = []
        self.free = threading.Event()
        self.free.set()
        self.answers: list[tuple[str, bool, str]] = []
        self.reloader = Reloader(
            self._reread, self.last, lambda: Instant(77.5, self.wall), self.notifier, Threads(lambda: 0.0)
        )

    def _reread(self) -> list[str]:
        self.reads += 1
        self.free.wait(10)
        self.work()
        return self.restarting

    def ask(self, who: str = "me") -> None:
        self.reloader.ask(lambda good, text: self.answers.append((who, good, text)))

    def answer(self) -> tuple[str, bool, str]:
        told = len(self.answers)
        self.ask()
        wait_until(lambda: len(self.answers) > told)
        return self.answers[-1]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.reloader.start()
    yield made
    made.free.set()
    made.reloader.stop(10)


def test_a_successful_one_is_dated_and_reported(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert rig.answer() == ("me", True, "configuration reloaded")
    assert (rig.last.good, rig.last.at) == (True, 5000.0)
    assert [each.getMessage() for each in caplog.records] == ["configuration reloaded"]
    assert rig.notifier.heard == [{"RELOADING": 1, "MONOTONIC_USEC": 77_500_000}, {"READY": 1}]
    rig.reloader.ask()  # as a signal does, without wanting an answer
    wait_until(lambda: rig.notifier.heard.count({"READY": 1}) == 2)
    assert (rig.reads, len(rig.answers)) == (2, 1)


def test_who_asked_is_told_which_changes_need_a_restart(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.restarting = ["web.listen", "state_dir"]
    told = "configuration reloaded; these changes need a restart: web.listen, state_dir"
    assert rig.answer() == ("me", True, told)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", told)]


def test_a_mistake_in_the_file_is_answered_and_logged_without_a_traceback(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise ConfigError("web.listen: 'x' is no address")

    rig.work = refuse
    assert rig.answer() == ("me", False, "web.listen: 'x' is no address")
    assert (rig.last.good, rig.last.at) == (False, STARTED)
    (told,) = caplog.records
    assert "web.listen" in told.getMessage() and not told.exc_info
    assert rig.notifier.heard[-1] == {"READY": 1}, "systemd waits for it, else the unit fails"
    rig.work = lambda: None
    assert rig.answer() == ("me", True, "configuration reloaded")
    assert (rig.last.good, rig.last.at) == (True, 5000.0)


def test_only_a_reload_that_the_web_file_prevented_is_repeated_when_it_is_repaired(rig: Rig) -> None:
    """Another mistake is still there, and its file may be half written."""

    def refuse(error: ConfigError) -> Callable[[], None]:
        def raise_error() -> None:
            raise error

        return raise_error

    rig.work = refuse(WebFileRejectedError("web.config_file: web.yml:1: is not a mapping"))
    assert not rig.answer()[1]
    rig.work = lambda: None
    rig.reloader.web_file_accepted()
    wait_until(lambda: rig.last.good)
    rig.work = refuse(ConfigError("web.listen: 'x' is no address"))
    assert not rig.answer()[1]
    reads = rig.reads
    rig.reloader.web_file_accepted()
    assert rig.answer()[0] == "me" and rig.reads == reads + 1


def test_every_request_is_answered_though_a_reload_has_a_defect_or_its_thread_fails(rig: Rig, caplog) -> None:
    def stumble() -> None:
        raise ZeroDivisionError("odd")

    def fall() -> None:
        raise SystemExit

    rig.work = stumble
    assert rig.answer() == ("me", False, "odd")
    assert caplog.records[0].exc_info
    rig.work = fall
    assert rig.answer() == ("me", False, "the reload failed; see coldplate's log")
    assert rig.notifier.heard[-1] == {"READY": 1}
    rig.work = lambda: None
    assert rig.answer()[1], "the thread did not begin again"


def test_a_request_while_one_is_under_way_is_answered_by_the_next_one(rig: Rig) -> None:
    """Its file may have changed after that one was read."""
    rig.free.clear()
    rig.ask("first")
    wait_until(lambda: rig.reads == 1)
    rig.ask("second")
    rig.ask("third")
    rig.free.set()
    wait_until(lambda: len(rig.answers) == 3)
    assert [who for who, _, _ in rig.answers] == ["first", "second", "third"]
    assert rig.reads == 2


@pytest.mark.parametrize("hangs", [False, True])
def test_stopping_waits_for_a_reload_under_way_unless_it_hangs(hangs: bool) -> None:
    rig = Rig()
    rig.reloader.start()
    rig.free.clear()
    rig.ask("under way")
    wait_until(lambda: rig.reads == 1)
    rig.ask("too late")
    if not hangs:
        threading.Timer(0.1, rig.free.set).start()
    rig.reloader.stop(0.05 if hangs else 10)
    ended = [("under way", True, "configuration reloaded"), ("too late", False, "the agent is stopping")]
    assert rig.answers == (ended[1:] if hangs else ended)
    assert rig.reads == 1
    rig.free.set()
    Rig().reloader.stop(0.0)  # one that never began
