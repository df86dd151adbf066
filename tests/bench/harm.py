"""The faults of the drill: how each comes about, what the page shows of it, and how it is cured."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from tests.bench.abuse import rule_file
from tests.bench.drill import GPUS, Drill, Page
from tests.bench.report import CannotRunError

Seen = Callable[[Page, Page], bool]
"""Whether a page shows something, given the page before the fault and the one now."""

PORT = "mlx5_3"
ADAPTER = f"{PORT}/ports/1/"
EVERYBODY = [f"hang {number}" for number in range(GPUS)]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of harm.

    `noticed` is what the page shows of it, where it shows something; `back` is what it shows once all is well, beside
    what it showed before. Only a `device` has to be noticed and back in time. Without a `cure` the daemon is to help
    itself, and the time counts from the fault. `holds` is for faults that are to last for a while, noticed or not.
    """

    title: str
    provoke: Callable[[Drill], object]
    cure: Callable[[Drill], object] | None = None
    noticed: Seen | None = None
    back: Seen = lambda before, now: True
    device: bool = False
    holds: bool = True
    falls: str = ""
    """The thread that is to be begun again."""


def down(*gpus: int) -> Seen:
    """These GPUs are not up, and the others are."""
    sick = {str(gpu) for gpu in gpus}

    def shows(before: Page, now: Page) -> bool:
        up = now.family("coldplate_gpu_up", "gpu")
        return all(up.get(str(gpu), 0.0) == (str(gpu) not in sick) for gpu in range(GPUS))

    return shows


def grown(name: str, **labels: str) -> Seen:
    """A counter is higher than it was."""
    return lambda before, now: now.total(name, **labels) > before.total(name, **labels)


def shows_zero(name: str, **labels: str) -> Seen:
    """Some series of a state that was 1 is 0."""
    return lambda before, now: now.total(name, **labels) < before.total(name, **labels)


def either(*each: Seen) -> Seen:
    return lambda before, now: any(one(before, now) for one in each)


def _healthy_driver(drill: Drill) -> None:
    drill.driver()


def _driver(title: str, noticed: Seen, *commands: str, device: bool = True) -> Fault:
    return Fault(title, lambda drill: drill.driver(*commands), _healthy_driver, noticed, device=device)


ALL_DOWN = down(*range(GPUS))
RESTARTED = grown("coldplate_worker_restarts_total")
NOT_RUNNING = shows_zero("coldplate_worker_up")

GPU_FAULTS = (
    _driver("one GPU hangs", down(3), "hang 3"),
    _driver("one GPU is lost", down(3), "lost 3"),
    _driver("all GPUs hang", ALL_DOWN, *EVERYBODY),
    _driver("the driver is unloaded", ALL_DOWN, "unloaded"),
)
WORKER_FAULTS = (
    Fault(
        "the worker is stopped",
        lambda drill: os.kill(drill.worker, signal.SIGSTOP),
        noticed=either(ALL_DOWN, NOT_RUNNING),
        back=RESTARTED,
        device=True,
        holds=False,
    ),
    Fault(
        "the worker is killed",
        lambda drill: os.kill(drill.worker, signal.SIGKILL),
        noticed=either(RESTARTED, NOT_RUNNING),
        back=RESTARTED,
        device=True,
        holds=False,
    ),
    _driver("the library crashes the worker", either(RESTARTED, NOT_RUNNING), "segv"),
    _driver("the library takes memory without end", either(RESTARTED, NOT_RUNNING), "balloon 4"),
    _driver("the library chatters on standard error", lambda before, now: False, "chatter", device=False),
    _driver(
        "garbage in the worker's output",
        either(grown("coldplate_readings_rejected_total", cause="garbage"), RESTARTED),
        "babble",
    ),
)


def _hanging(title: str, noticed: Seen, *words: str, device: bool = True) -> Fault:
    return Fault(
        title,
        lambda drill: drill.firmware.hang(*words),
        lambda drill: drill.firmware.hang(),
        noticed,
        device=device,
    )


def _port_missing(before: Page, now: Page) -> bool:
    return now.total("coldplate_metric_missing", device=PORT) > before.total("coldplate_metric_missing", device=PORT)


class _SpoiledFiles:
    """Every counter of a port says something else than a number, in the files that are open already."""

    CONTENTS = (b"", b"\xff\xfe\x00" * 1000, b"-1\n", b"nan\n", b"9" * 40 + b"\n", b"7" * (4 << 20), b"N/A (no PMA)\n")

    def __init__(self) -> None:
        self._was: dict[Path, bytes] = {}

    def provoke(self, drill: Drill) -> None:
        folder = drill.sysfs / "class/infiniband" / ADAPTER
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for number, path in enumerate(files):
            self._was[path] = path.read_bytes()
            path.write_bytes(self.CONTENTS[number % len(self.CONTENTS)])

    def cure(self, drill: Drill) -> None:
        for path, content in self._was.items():
            path.write_bytes(content)
        self._was.clear()


_SPOILED = _SpoiledFiles()

FILE_FAULTS = (
    _hanging("an InfiniBand port's state hangs", _port_missing, ADAPTER + "state"),
    _hanging("all files of an InfiniBand port hang", _port_missing, ADAPTER),
    _hanging(
        "all files of InfiniBand hang",
        either(_port_missing, shows_zero("coldplate_backend_up", backend="infiniband")),
        "/infiniband/",
    ),
    Fault("garbage in all files of a port", _SPOILED.provoke, _SPOILED.cure, _port_missing, device=True),
)


def _load(drill: Drill) -> None:
    drill.rules(rule_file())


def _load_often(drill: Drill) -> None:
    for _ in range(5):
        _load(drill)


DEAR = r"""
groups:
- name: dear
  rules:
  - {record: steps, expr: 'max_over_time(rate(coldplate_gpu_power_watts[1m])[1d:1ms])'}
  - {record: every, expr: 'sum_over_time({__name__=~".+"}[1h])'}
  - {record: pairs, expr: 'count(group by (__name__, gpu, link) ({__name__=~".+"}) * on () group_left vector(1))'}
- name: backtracks
  rules:
  - alert: Backtracks
    expr: label_replace(coldplate_gpu_up{uuid=~"(([0-9a-z-])+)+!|(a+)+b|.*"}, "x", "$1", "uuid", "(([0-9a-z-])+)+!")
    annotations: {text: '{{ match `(a+)+b` "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" }}'}
- name: bombs
  rules:
  - alert: Runaway
    expr: coldplate_gpu_up > 0
    annotations:
      text: '{{ range query `{job=~".+"}` }}{{ range query `{job=~".+"}` }}{{ .Value }}{{ end }}{{ end }}'
  - alert: Doubles
    expr: coldplate_gpu_up > 0
    annotations: {text: '{{ $x := `aaaaaaaa` }}{{ range query `{job=~".+"}` }}{{ $x = print $x $x }}{{ end }}{{ $x }}'}
  - alert: Pads
    expr: coldplate_gpu_up > 0
    annotations: {text: '{{ reReplaceAll `` `xxxxxxxxxxxxxxxx` (printf `%1000s%1000s%1000s` `a` `b` `c`) }}'}
"""


def _refused_rules() -> Iterator[str]:
    """Files that no start would take, or that cost nothing if one does."""
    expressions = (
        "(" * 10_000 + "1" + ")" * 10_000,
        "up offset 1e300",
        "-" * 30_000 + "1",
        "up" + "[5m:1s]" * 500,
        "sum(" * 5000,
        'up{a=~"' + "(" * 5000 + '"}',
        'up{a=~"(((a{1,100}){1,100}){1,100})"}',
    )
    for expr in expressions:
        yield f"groups: [{{name: refused, rules: [{{record: x, expr: '{expr}'}}]}}]\n"
    yield "groups: " + "[" * 5000
    yield "groups: [{name: refused, rules: [{alert: x, expr: up, annotations: {a: '" + "{{ if 1 }}" * 5000 + "'}}]}]\n"


def _try_refused(drill: Drill) -> None:
    for text in _refused_rules():
        drill.rules(text)
    drill.rules("groups: 1\n")


CONFIG_REFUSED = shows_zero("coldplate_config_last_reload_successful")
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


def _config(title: str, put: Callable[[Path], object]) -> Fault:
    return Fault(title, lambda drill: drill.configure(put), lambda drill: drill.configure(), CONFIG_REFUSED)


def _all_evaluated(before: Page, now: Page) -> bool:
    return now.total("coldplate_rule_evaluations_total", rule_group="load99") > 0


def _load_dear(drill: Drill) -> None:
    if drill.rules(DEAR) != HTTPStatus.OK:
        raise CannotRunError(f"the rules that take for ever were refused: {drill.log[-300:]}")


RULE_FAULTS = (
    Fault("5,000 rules are loaded", _load, lambda drill: drill.rules(), _all_evaluated),
    Fault("5,000 rules are loaded five times", _load_often, lambda drill: drill.rules(), _all_evaluated),
    Fault(
        "rules that take for ever",
        _load_dear,
        lambda drill: drill.rules(),
        grown("coldplate_rule_evaluation_failures_total"),
    ),
    Fault("rule files that nobody can load", _try_refused, lambda drill: drill.rules(), CONFIG_REFUSED),
)
CONFIG_FAULTS = (
    _config("configuration: a bomb of aliases", lambda path: path.write_text(BOMB)),
    _config(
        "configuration: an anchor that contains itself", lambda path: path.write_text("node: &a {name: *a, b: [*a]}\n")
    ),
    _config("configuration: a FIFO", os.mkfifo),
    _config("configuration: a link to /dev/zero", lambda path: path.symlink_to("/dev/zero")),
    _config("configuration: 100,000 levels", lambda path: path.write_text("a: " + "[" * 100_000)),
)


def _receiver(title: str, manner: str, noticed: Seen | None = None) -> Fault:
    return Fault(
        f"the receiver {title}",
        lambda drill: drill.behave(receiver=manner),
        lambda drill: drill.behave(),
        noticed or grown("coldplate_notification_failures_total"),
        grown("coldplate_notifications_total"),
    )


def _peer(title: str, manner: str) -> Fault:
    return Fault(
        f"the peer {title}",
        lambda drill: drill.behave(peer=manner),
        lambda drill: drill.behave(),
        shows_zero("coldplate_rack_peer_up"),
    )


OUTSIDERS = (
    _receiver("does not answer", "hang"),
    _receiver("answers a byte at a time", "drip"),
    _receiver("answers 10 MiB", "huge"),
    _receiver("never ends its answer", "endless"),
    _peer("does not answer", "hang"),
    _peer("answers garbage", "garbage"),
    _peer("answers 10 MiB", "huge"),
    _peer("never ends its answer", "endless"),
)


def _fill(drill: Drill) -> None:
    if drill.limited:
        with (drill.state / "filling").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return
    elif os.geteuid() != 0:
        drill.state.chmod(0o500)
    else:
        raise CannotRunError("root may write everywhere, and mounting a small file system is not allowed")


def _empty(drill: Drill) -> None:
    (drill.state / "filling").unlink(missing_ok=True)
    drill.state.chmod(0o700)


STATE_FAULTS = (Fault("the state directory is full", _fill, _empty, shows_zero("coldplate_state_write_successful")),)

PLAIN: Sequence[Fault] = (
    Fault("nothing", lambda drill: None, lambda drill: None),
    *GPU_FAULTS,
    *WORKER_FAULTS,
    *FILE_FAULTS,
    *RULE_FAULTS,
    *CONFIG_FAULTS,
    *OUTSIDERS,
    *STATE_FAULTS,
)  # fmt: skip
"""For one daemon, one after the other."""


def _refuse_a_file(drill: Drill) -> None:
    """Wake every thread: a reload that is refused makes an alert, which is told and remembered."""
    drill.config.write_text("nonsense: 1\n")
    os.kill(drill.pid, signal.SIGHUP)


def _take_it_back(drill: Drill) -> None:
    drill.config.write_text(drill.good)
    os.kill(drill.pid, signal.SIGHUP)


def fallen(thread: str) -> Fault:
    """An exception in a thread of the daemon, at whatever it is doing."""

    def strike(drill: Drill) -> None:
        drill.sabotage(fall=[thread])
        _refuse_a_file(drill)

    begun_again = grown("coldplate_thread_restarts_total", thread=thread)
    return Fault(f"an exception in thread {thread}", strike, _take_it_back, begun_again, begun_again, falls=thread)


def _no_threads(drill: Drill) -> None:
    drill.sabotage(refuse=10.0)
    drill.firmware.hang(ADAPTER)


SHORTAGE = Fault(
    "no thread to be had for 10 s, and a port hangs",
    _no_threads,
    lambda drill: drill.firmware.hang(),
    either(_port_missing, shows_zero("coldplate_backend_up", backend="infiniband")),
    device=True,
)
SILENT = Fault(
    "a GPU is silent when the driver is opened",
    lambda drill: None,
    _healthy_driver,
    down(3),
    lambda before, now: now.total("coldplate_gpu_up") == GPUS,
    device=True,
)
"""Provoked before the daemon starts, by what its driver is told."""
SILENT_FROM = ("hang 3",)
