"""One kind of harm: how it comes about, what the page shows of it, and how it is cured."""

import errno
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bench.report import CannotRunError
from tests.lab.drill.drilled_daemon import ADAPTER, GPUS, MOUNT, PORT, Drill, Page

Seen = Callable[[Page, Page], bool]
"""Whether a page shows something, given the page before the fault and the one now."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of harm.

    `expected` says in words what the page is to show and what is to go on. `noticed` is what the page shows of it,
    where it shows something; `back` is what it shows once all is well, beside what it showed before. Only a `device`
    has to be noticed and back in time. Without a `cure` the daemon is to help itself, and the time counts from the
    fault. `holds` is for faults that are to last for a while, noticed or not. `answers` is whether the daemon is to
    answer scrapes meanwhile, `forgets` whether it may forget since when alerts are active.
    """

    title: str
    expected: str
    provoke: Callable[[Drill], object]
    cure: Callable[[Drill], object] | None = None
    noticed: Seen | None = None
    back: Seen = lambda before, now: True
    device: bool = False
    holds: bool = True
    answers: bool = True
    forgets: bool = False
    falls: str = ""
    """The thread that is to be begun again."""


def down(*gpus: int) -> Seen:
    sick = {str(gpu) for gpu in gpus}

    def shows(before: Page, now: Page) -> bool:
        up = now.family("coldplate_gpu_up", "gpu")
        return all(up.get(str(gpu), 0.0) == (str(gpu) not in sick) for gpu in range(GPUS))

    return shows


def grown(name: str, **labels: str) -> Seen:
    return lambda before, now: now.total(name, **labels) > before.total(name, **labels)


def shrunk(name: str, **labels: str) -> Seen:
    """The sum of these series is lower than it was: some series of a state that was 1 is 0, or is gone."""
    return lambda before, now: now.total(name, **labels) < before.total(name, **labels)


def either(*each: Seen) -> Seen:
    return lambda before, now: any(one(before, now) for one in each)


# -- GPUs, their driver, and the worker that calls its library ---------------------------------------------------------

ALL_DOWN, RESTARTED = down(*range(GPUS)), grown("coldplate_worker_restarts_total")
NOT_RUNNING = shrunk("coldplate_worker_up")
ONE_DOWN = "GPU 3 is down, the others are sampled on"
NONE_UP = "all GPUs are down, everything else is served on"
REPLACED = "a new worker in seconds; everything else is served on"


def _driver(title: str, expected: str, noticed: Seen, *commands: str) -> Fault:
    return Fault(title, expected, lambda drill: drill.driver(*commands), Drill.driver, noticed, device=True)


DRIVER = (
    _driver("one GPU hangs", ONE_DOWN, down(3), "hang 3"),
    _driver("one GPU is lost", ONE_DOWN, down(3), "lost 3"),
    _driver("all GPUs hang", NONE_UP, ALL_DOWN, *(f"hang {number}" for number in range(GPUS))),
    _driver("the driver is unloaded", NONE_UP, ALL_DOWN, "unloaded"),
    Fault(
        "the worker is killed",
        REPLACED,
        lambda drill: os.kill(drill.worker, signal.SIGKILL),
        noticed=either(RESTARTED, NOT_RUNNING),
        back=RESTARTED,
        device=True,
        holds=False,
    ),
    _driver("the library crashes the worker", REPLACED, either(RESTARTED, NOT_RUNNING), "segv"),
    _driver("the library takes memory without end", REPLACED, either(RESTARTED, NOT_RUNNING), "balloon 4"),
    _driver(
        "garbage in the worker's output",
        "what is no reading is rejected and counted",
        either(grown("coldplate_readings_rejected_total", cause="invalid"), RESTARTED),
        "babble",
    ),
)
AT_START = Fault(
    "the driver hangs while it is opened",
    NONE_UP,
    lambda drill: None,
    Drill.driver,
    lambda before, now: not now.family("coldplate_backend_up", "backend").get("nvml"),
    lambda before, now: now.total("coldplate_gpu_up") == GPUS,
    device=True,
)
"""Of a daemon whose driver was told `hang-init` before it started."""

# -- Files of sysfs ----------------------------------------------------------------------------------------------------

OTHERS = "the rows of this port are missing with a reason, the others are read on"
CONTENTS = (b"", b"\xff\xfe\x00" * 1000, b"-1\n", b"nan\n", b"9" * 40 + b"\n", b"7" * (4 << 20), b"N/A (no PMA)\n")


def port_missing(before: Page, now: Page) -> bool:
    return now.total("coldplate_metric_missing", device=PORT) > before.total("coldplate_metric_missing", device=PORT)


def _files(title: str, *commands: str) -> Fault:
    def tell(*commands: str) -> Callable[[Drill], object]:
        return lambda drill: drill.firmware.command(*commands)

    return Fault(title, OTHERS, tell(*commands), tell(), port_missing, device=True)


class _SpoiledFiles:
    """Every counter of a port says something else than a number, in the files that are open already."""

    def __init__(self) -> None:
        self._was: dict[Path, bytes] = {}

    def provoke(self, drill: Drill) -> None:
        folder = drill.sysfs / "class/infiniband" / ADAPTER
        for number, path in enumerate(path for path in sorted(folder.rglob("*")) if path.is_file()):
            self._was[path] = path.read_bytes()
            path.write_bytes(CONTENTS[number % len(CONTENTS)])

    def cure(self, drill: Drill) -> None:
        for path, content in self._was.items():
            path.write_bytes(content)


_SPOILED = _SpoiledFiles()
FILES = (
    _files("all files of an InfiniBand port hang", f"hang {ADAPTER}"),
    _files("all files of a port end with EIO", f"fail {errno.EIO} {ADAPTER}"),
    Fault("garbage in all files of a port", OTHERS, _SPOILED.provoke, _SPOILED.cure, port_missing, device=True),
    Fault(
        "an InfiniBand adapter is gone",
        "its rows are missing as lost, the others are read on",
        Drill.take_port,
        Drill.bring_port,
        either(port_missing, shrunk("coldplate_infiniband_port_up")),
        device=True,
    ),
)

# -- Rules and configurations ------------------------------------------------------------------------------------------

DEAR = Path(__file__).with_name("dear.rules.yml").read_text()
REFUSED = "refused with the place named, the one before stays in force"
CONFIG_REFUSED = shrunk("coldplate_config_last_reload_successful")
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


def _load_dear(drill: Drill) -> None:
    if not drill.rules(DEAR):
        raise CannotRunError(f"the rules that take for ever were refused: {drill.log[-300:]}")


def _try_refused(drill: Drill) -> None:
    """Files that no start would take, or that cost nothing if one does."""
    for expr in ("(" * 10_000 + "1" + ")" * 10_000, "-" * 30_000 + "1", 'up{a=~"(((a{1,100}){1,100}){1,100})"}'):
        drill.rules(f"groups: [{{name: refused, rules: [{{record: x, expr: '{expr}'}}]}}]\n")
    drill.rules("groups: " + "[" * 5000)


def _config(title: str, put: Callable[[Path], object]) -> Fault:
    return Fault(title, REFUSED, lambda drill: drill.configure(put), Drill.configure, CONFIG_REFUSED)


RULES = (
    Fault(
        "rules that take for ever",
        "they fail and are counted, the others are evaluated on",
        _load_dear,
        Drill.rules,
        grown("coldplate_rule_evaluation_failures_total"),
    ),
    Fault("rule files that cannot be loaded", REFUSED, _try_refused, Drill.rules, CONFIG_REFUSED),
    _config("configuration: a bomb of aliases", lambda path: path.write_text(BOMB)),
    _config("configuration: a FIFO", os.mkfifo),
)

# -- Receivers of alerts, the rack's peers, the management controller --------------------------------------------------

COUNTED = "failures are counted, alerts are sent again"
WITHOUT = "the rack's sum is without it, and says so"
OTHERWISE = "node power is missing or from another source, with a reason"


def _outsider(name: str, does: str, manner: str, expected: str, noticed: Seen, back: Seen | None = None) -> Fault:
    return Fault(
        f"the {name} {does}",
        expected,
        lambda drill: drill.behave(**{name.split()[-1]: manner}),
        Drill.behave,
        noticed,
        back or (lambda before, now: True),
    )


_FAILURES, _SENT = (grown(f"coldplate_notifications_{each}_total") for each in ("errors", "sent"))
OUTSIDERS = (
    _outsider("receiver", "does not answer", "hang", COUNTED, _FAILURES, _SENT),
    _outsider("receiver", "answers with errors", "failing", COUNTED, _FAILURES, _SENT),
    _outsider("peer", "answers garbage", "garbage", WITHOUT, shrunk("coldplate_rack_peer_up")),
    _outsider("management controller", "resets connections", "reset", OTHERWISE, grown("coldplate_metric_missing")),
)

# -- The state directory, the clock, the system's limits ---------------------------------------------------------------

WRITTEN_LATER = "said by a series; alerts go on, and are written when it can be"
NOT_WRITTEN = shrunk("coldplate_state_write_successful")


def _fill(drill: Drill) -> None:
    if not drill.limited:
        raise CannotRunError("mounting a small file system is not allowed here, and it takes one")
    with (drill.state / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def _take_away(drill: Drill) -> None:
    if drill.limited:
        subprocess.run(["umount", "-l", str(drill.state)], check=True)
        drill.state.rmdir()
    else:
        drill.state.rename(drill.folder / "away")


def _bring_back(drill: Drill) -> None:
    if drill.limited:
        drill.state.mkdir(exist_ok=True)
        subprocess.run([*MOUNT, str(drill.state)], check=True)
    else:
        (drill.folder / "away").rename(drill.state)


def _signal_both(drill: Drill, number: signal.Signals) -> None:
    for pid in (drill.pid, drill.worker):
        os.kill(pid, number)


def _refuse_a_file(drill: Drill) -> None:
    """Wake every thread: a reload that is refused makes an alert, which is sent and remembered."""
    drill.hang_up("nonsense: 1\n")


def _take_it_back(drill: Drill) -> None:
    drill.hang_up(drill.good)


class _Limit:
    """A limit of the process that is brought down to what it uses, and a little more."""

    def __init__(self, which: int, used: Callable[[Drill], int]) -> None:
        self._which, self._used = which, used
        self._was = (0, 0)

    def provoke(self, drill: Drill) -> None:
        self._was = resource.prlimit(drill.pid, self._which)
        resource.prlimit(drill.pid, self._which, (self._used(drill), self._was[1]))
        _refuse_a_file(drill)

    def cure(self, drill: Drill) -> None:
        resource.prlimit(drill.pid, self._which, self._was)
        _take_it_back(drill)


def _descriptors(drill: Drill) -> int:
    return 1 + max(int(each.name) for each in Path(f"/proc/{drill.pid}/fd").iterdir())


def _address_space(drill: Drill) -> int:
    return int(Path(f"/proc/{drill.pid}/statm").read_text().split()[0]) * resource.getpagesize() + (256 << 10)


_NO_FILE, _NO_MEMORY = _Limit(resource.RLIMIT_NOFILE, _descriptors), _Limit(resource.RLIMIT_AS, _address_space)
SYSTEM = (
    Fault(
        "the state directory is full",
        WRITTEN_LATER,
        _fill,
        lambda drill: (drill.state / "filling").unlink(missing_ok=True),
        NOT_WRITTEN,
    ),
    Fault("the state directory is gone", WRITTEN_LATER, _take_away, _bring_back, NOT_WRITTEN),
    Fault(
        "the clock is set back by an hour",
        "samples, ages, windows and alerts go on",
        lambda drill: drill.firmware.command("clock -3600"),
        lambda drill: drill.firmware.command(),
    ),
    Fault(
        "both processes stand still, as on a suspended machine",
        "it goes on where it was",
        lambda drill: _signal_both(drill, signal.SIGSTOP),
        lambda drill: _signal_both(drill, signal.SIGCONT),
        answers=False,
    ),
    Fault("no file descriptor to be had", "what is open is read and served on", _NO_FILE.provoke, _NO_FILE.cure),
    Fault("no more memory to be had", "what fails is tried again", _NO_MEMORY.provoke, _NO_MEMORY.cure),
)

PLAIN: Sequence[Fault] = (
    Fault("nothing", "nothing", lambda drill: None, lambda drill: None),
    *DRIVER,
    *FILES,
    *RULES,
    *OUTSIDERS,
    *SYSTEM,
)

# -- Threads that end by an exception, and daemons that are killed: for daemons of their own ---------------------------


def fallen(thread: str) -> Fault:
    """An exception in a thread of the daemon, at whatever it is doing."""

    def strike(drill: Drill) -> None:
        drill.sabotage(fall=thread)
        _refuse_a_file(drill)

    again = grown("coldplate_thread_restarts_total", thread=thread)
    expected = "begun again, none of its work is lost"
    return Fault(f"an exception in thread {thread}", expected, strike, _take_it_back, again, again, falls=thread)


def _no_threads(drill: Drill) -> None:
    drill.sabotage(refuse=10.0)
    drill.firmware.command(f"hang {ADAPTER}")


THREADS_SHORTAGE = Fault(
    "no thread to be had for 10 s, and a port hangs",
    "the port is missing, the others are read on",
    _no_threads,
    lambda drill: drill.firmware.command(),
    either(port_missing, shrunk("coldplate_backend_up", backend="infiniband")),
    device=True,
)
LATEST_SECONDS = 4.0
"""Seconds after the start within which it is killed: while it reads its state, writes it, makes its first page."""


def _kill_at(seconds: float) -> Callable[[Drill], object]:
    def strike(drill: Drill) -> None:
        drill.kill_and_restart()
        time.sleep(seconds)
        drill.kill_and_restart()

    return strike


def _damage_state(drill: Drill) -> None:
    def spoil() -> None:
        for path in sorted(drill.state.rglob("*")):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(b"\xff\x00{[" * 1000)

    drill.kill_and_restart(spoil)


def restarts() -> Iterator[Fault]:
    for number in (1, 2):
        seconds = round(random.uniform(0.0, LATEST_SECONDS), 2)
        title = f"killed, and again {seconds} s after the next start ({number})"
        expected = "the alerts are active since when they were, all devices are back"
        yield Fault(title, expected, _kill_at(seconds), device=True, answers=False)
    expected = "logged; the damaged state is reset, everything else continues"
    yield Fault(
        "killed, its state files full of garbage", expected, _damage_state, device=True, answers=False, forgets=True
    )
