"""Hours of a node faster than they pass: its parts in this process, given the time as an argument.

The synthetic source, the sampler, the rule engine with the shipped rules, the alert store, the flight recorder, the
rack with its peers, and all pages. What a process costs its system is the other soak's business; here it is what
the parts remember: the objects that the interpreter keeps, and the memory in which they lie.
"""

from __future__ import annotations

import gc
import os
import tempfile
from math import ceil
from pathlib import Path

from agent.backends.synthetic import Scenario
from agent.backends.synthetic.loader import load_scenario
from agent.commands.run import settle_heap
from agent.daemon.alert_store import AlertStateStore
from agent.daemon.flight_recorder import FIRING, XID, FlightRecorder, FlightSettings
from agent.lib.state_files import StateFiles
from agent.lib.threads import Threads
from agent.model import Snapshot
from agent.rack.finder import HostEntry
from agent.rack.monitor import RackMonitor
from agent.rack.peer_messages import PeerFault
from agent.rack.peers import Member
from agent.rack.rack_options import RackOptions
from agent.recording.file_records import RecordingHeader
from alerts import rulefile
from alerts.engine import Ruleset
from exporters.http_messages import Request
from exporters.routes import Routes
from tests.asking import ask, context
from tests.lab.bench.report import Progress
from tests.lab.score.play import Play, load_pack
from tests.lab.soak.churn import rules_of
from tests.lab.soak.growth import Footprint, Soaked, Trend, number

PEERS = 3
PAGES = ("/metrics", "/", "/api/v1/snapshot", "/api/v1/rules", "/api/v1/alerts", "/api/v1/rack")
SPAN = 300.0
KEEP = 1 << 20
LOOK_EVERY, RELOAD_EVERY, REOPEN_EVERY, PAGE_EVERY = 60, 300, 1200, 15
"""Seconds of the node's time."""
WARM = 16_200
"""Seconds until all that is kept for a while is full: the longest range of the shipped rules is four hours."""
OBJECTS = 1_000.0
"""Objects by which a node may have more at the end: some 0.1 MiB."""


class Hours:
    """A node with its rack and its pages. Use as a context manager."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self._folder = folder
        self._pack = load_pack()
        self._threads = Threads()
        self._files = StateFiles(self._threads)
        self._store = AlertStateStore(folder / "state", "synthetic", self._files)
        settings = FlightSettings(SPAN, frozenset({FIRING, XID}), folder / "state" / "flight", KEEP)
        self._flight = FlightRecorder(settings, RecordingHeader("0", "node", 0.0, 0.0, 1.0), self._threads)
        self._latest: Snapshot | None = None
        self._second = self.reloads = self.pages = 0
        self._monitors = self._make_monitors()
        providers = (self._flight, self._monitors[0])
        self._play = Play(busy_hours(folder, seconds), self._pack, providers=providers)
        self._site = self._make_site()

    def __enter__(self) -> Hours:  # noqa: PYI034 Python 3.10 has no Self
        (self._folder / "state").mkdir()
        self._flight.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._play.close()
        self._flight.stop(10.0)
        self._files.stop(10.0)

    def _make_monitors(self) -> list[RackMonitor]:
        """This node's and its peers': all know each other."""
        entries = tuple(HostEntry(f"10.0.0.{each}", 19400) for each in range(PEERS + 1))
        options = RackOptions("r1", entries=entries, budget=60_000.0, nameplate=12_000.0)
        members = [Member("r1", "", f"run-of-node-{each}", f"n{each}:19400", "coldplate") for each in range(PEERS + 1)]
        made = [RackMonitor(each, options, lambda: self._play.now, lambda: 0.0) for each in members]
        for each in made:
            each._finder.refresh()  # what the thread does that looks names up
        return made

    def _make_site(self) -> Routes:
        return Routes(
            context(
                scraped=lambda: self._latest,
                all_series=lambda: self._latest,
                clock=lambda: self._play.now.mono,
                rules=self._play.engine.reports,
                rack=self._monitors[0].report,
            )
        )

    def go_on(self, seconds: int) -> None:
        """So many seconds of the node's time."""
        for _ in range(seconds):
            self._second += 1
            self._live()
            if self._second % RELOAD_EVERY == 0:
                self._reload()
            if self._second % REOPEN_EVERY == 0:
                self._play.reopen()
            if self._second % PAGE_EVERY == 0:
                self._serve()

    def _live(self) -> None:
        now = self._play.now
        snapshot = self._latest = self._play.sample()
        self._flight.observe(snapshot)
        self._meet(snapshot)
        done = self._play.judge(snapshot, self._monitors[0].foreign(now))
        self._store.after(self._play.engine, done, now, ())
        self._threads.tend()
        # What the test itself remembers is not to count.
        self._play.sent.clear()  # each reload brings alerts of other names
        self._play.firings.clear()
        self._play.failures.clear()

    def _meet(self, snapshot: Snapshot) -> None:
        """All nodes of the rack draw the same power, and tell each other; one of them is away now and then."""
        now = self._play.now
        for monitor in self._monitors:
            monitor.observe(snapshot)
        away = self._second // 300 % (PEERS + 2)
        own = self._monitors[0]
        for target, monitor in zip(own._finder.targets, self._monitors, strict=True):
            body = monitor.report()
            if monitor is self._monitors[away % len(self._monitors)] or body is None:
                own.failed(target, PeerFault.CONNECT, "refused")
            else:
                own.answered(target, body, now, now)

    def _reload(self) -> None:
        """Rules that nobody has seen before take the place of others."""
        self.reloads += 1
        path = self._folder / "churn.yml"
        path.write_text(rules_of(f"r{self.reloads}"))
        loaded = rulefile.load(path, default_step=1)
        self._play.reload(Ruleset((*self._pack, loaded)))

    def _serve(self) -> None:
        """A page of each kind in turn, in words that nobody has used before where it takes any."""
        path = PAGES[self.pages % len(PAGES)]
        query = f"rule_name[]=Churn{self.pages}" if path == "/api/v1/rules" else ""
        headers = {"accept-encoding": "gzip"} if self.pages % 2 else {"accept": "application/openmetrics-text"}
        ask(self._site, Request("GET", path, query, headers))
        self.pages += 1


def accelerated(progress: Progress, seconds: int, warm: float = WARM) -> Soaked:
    """Soak for so many seconds of the node's time; growth counts from `warm` on."""
    settle_heap()
    objects = Trend("objects of the interpreter", OBJECTS, number)
    with tempfile.TemporaryDirectory() as name, Hours(Path(name), seconds) as hours:
        footprint = Footprint({"all parts": os.getpid()}, Path(name) / "state")
        for look in range(0, seconds, LOOK_EVERY):
            hours.go_on(LOOK_EVERY)
            gc.collect()
            objects.note(look, len(gc.get_objects()))
            footprint.look(look)
            if look % 3600 == 0:
                progress.say(f"{look // 3600} h of {seconds / 3600:.1f} h; {objects.samples[-1][1]:,.0f} objects")
        told = f"{hours.reloads} reloads, {hours.pages} pages"
    return Soaked(seconds, warm, [objects, *footprint.trends], told)


SHORTEST_JOB_SECONDS = 600
MOST_JOBS = 480
"""Jobs of a run: a scenario has no more than 500."""
GPUS = 8

FAULTS = """\
faults:
  - {kind: ib-down, port: mlx5_3, at: 300s, duration: 90s, repeat: 20m}
  - {kind: hang, gpu: 2, at: 700s, duration: 60s, repeat: 50m}
  - {kind: xid, gpu: 5, at: 900s, repeat: 15m, code: 31}
  - {kind: ecc, gpu: 6, at: 400s, duration: 5m, repeat: 30m, corrected_rate: 1}
  - {kind: nvlink-down, gpu: 1, link: 4, at: 500s, duration: 2m, repeat: 35m}
  - {kind: missing, gpu: 4, at: 200s, duration: 3m, repeat: 25m, metric: coldplate_gpu_temperature_celsius}
  - {kind: sentinel, gpu: 3, at: 250s, duration: 3m, repeat: 45m, metric: coldplate_gpu_power_watts}
"""


def busy_hours(folder: Path, seconds: int) -> Scenario:
    """A job after the other, each with a number of its own, and each GPU lost and back in its turn."""
    period = max(SHORTEST_JOB_SECONDS, ceil(seconds / MOST_JOBS))
    jobs = "".join(_job(number, period) for number in range(seconds // period + 1))
    lost = "".join(
        f"  - {{kind: lost, gpu: {gpu}, at: {180 + 300 * gpu}s, duration: 60s, repeat: 41m}}\n" for gpu in range(GPUS)
    )
    path = folder / "busy-hours.yaml"
    path.write_text(f"description: Hours of changes.\ntopology: dgx-h100\nseed: 1\njobs:\n{jobs}{FAULTS}{lost}")
    return load_scenario(str(path))


def _job(number: int, period: int) -> str:
    start, end = period * number, period * (number + 1) - 60
    return (
        f'  - {{id: "{7000 + number}", name: train-{number}, user: u{number}, account: a{number}, partition: h100,\n'
        f"     gpus: 0-{3 + number % 5}, parallelism: data, memory: 0.8, start: {start}s, end: {end}s,\n"
        f"     phases: [{{kind: training}}]}}\n"
    )
