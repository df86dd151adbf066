"""A daemon with everything around it that can fall sick, and the means to make it so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench import client
from tests.bench.abuse import PRIORITY, prefer
from tests.bench.processes import Program, children
from tests.bench.report import CannotRunError
from tests.bench.rig import ROOT, Daemon, Rig
from tests.fakes.firmware.preload import FakeFirmware
from tests.fakes.nvml import build

GPUS = 8
START_PATIENCE = 30.0
SETTLED_AFTER = 60.0
"""Seconds within which a daemon that was started is to be well."""

RULES = """\
groups:
- name: site
  rules:
  - {alert: Always, expr: 'vector(1)'}
  - {alert: Waits, expr: 'vector(1)', for: 1d}
  - {alert: Refused, expr: 'coldplate_config_last_reload_successful == 0'}
"""
CONFIG = """\
web: {{enable_lifecycle: true}}
backends: {{power: [estimate]}}
rules: {{files: [builtin, {rules}/site*.yml]}}
notify:
  resend: 1s
  alertmanager: {{urls: ['http://127.0.0.1:{receiver}'], timeout: 3s}}
  webhook: {{urls: ['http://127.0.0.1:{receiver}/hook'], timeout: 3s}}
rack: {{name: r1, peers: [{rules}/peers.json]}}
"""
SABOTAGE = ("-m", "tests.daemon.sabotage")

_NAME = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DEVICES = ("coldplate_gpu_up", "coldplate_infiniband_port_up", "coldplate_worker_up", "coldplate_backend_up")
"""What a page has to show as it did before the fault, for the devices to be back."""
EVERYTHING = (
    *DEVICES,
    "coldplate_thread_up",
    "coldplate_config_last_reload_successful",
    "coldplate_state_write_successful",
    "coldplate_rack_peer_up",
    "coldplate_metric_missing",
)
"""What it has to show besides, for all to be well."""
FRESH = 3.0
"""Seconds that a sample may be old on a page that is well."""


class Page:
    """What a daemon shows at a moment."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, dict[str, float]] = {}
        for key, value in client.values_of(text).items():
            name, _, labels = key.partition("{")
            self._values.setdefault(name, {})[labels] = value

    def family(self, name: str, label: str = "") -> dict[str, float]:
        """Values of one metric by one of its labels; added up where several have the same."""
        found: dict[str, float] = {}
        for labels, value in self._values.get(name, {}).items():
            key = dict(_NAME.findall(labels)).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's values, of those series that have these labels."""
        wanted = set(labels.items())
        return sum(value for own, value in self._values.get(name, {}).items() if wanted <= set(_NAME.findall(own)))

    def differs(self, before: Page, names: Sequence[str]) -> str:
        """What is not as it was of these metrics, or not fresh; empty if nothing.

        An empty page says of nothing how it was.
        """
        for name in names:
            was, now = before._values.get(name, {}), self._values.get(name, {})
            if before._values and now != was:
                keys = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
                return f"{name}{{{keys[0]}"
        for name in ("coldplate_gpu_sample_age_seconds", "coldplate_sample_age_seconds"):
            if any(age > FRESH for age in self._values.get(name, {}).values()):
                return f"{name} above {FRESH:.0f} s"
        return ""


class Drill:
    """One daemon, the files that it reads, and those whom it talks to."""

    def __init__(self, daemon: Daemon, folder: Path, firmware: FakeFirmware, state: Path, limited: bool) -> None:
        self.daemon = daemon
        self.pid = daemon.pids[0]
        self.folder = folder
        self.firmware = firmware
        self.state = state
        self.limited = limited
        """Whether the state directory is a small file system of its own."""
        self.config = daemon.folder / "coldplate.yaml"
        self.good = self.config.read_text()
        self.sysfs = folder / "sysfs"

    @property
    def worker(self) -> int:
        return children(self.pid)[0]

    @property
    def log(self) -> str:
        return (self.daemon.folder / "log").read_text(errors="replace")

    def page(self) -> Page | None:
        """None if there is none to be had."""
        try:
            return Page(self.daemon.page())
        except (OSError, ValueError):
            return None

    def healthy(self) -> bool:
        try:
            client.scrape(self.daemon.address, client.request(self.daemon.address, path="/-/healthy"))
        except (OSError, ValueError):
            return False
        return True

    def driver(self, *commands: str) -> None:
        """Tell the stand-in for the driver's library what to do from now on."""
        build.command(self.folder / "control", *commands)

    def behave(self, **manners: str) -> None:
        """Tell the receiver and the peer how to answer from now on; by default, well."""
        _tell_outsiders(self.folder, manners)

    def reload(self) -> int:
        """Have the configuration read again; the status of the answer, 0 without one."""
        host, port = self.daemon.address
        request = urllib.request.Request(f"http://{host}:{port}/-/reload", b"")
        try:
            with urllib.request.urlopen(request, timeout=60.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def configure(self, put: Callable[[Path], object] | None = None) -> None:
        """Put something in the place of the configuration, or what belongs there, and have it read."""
        self.config.unlink(missing_ok=True)
        if put is None:
            self.config.write_text(self.good)
        else:
            put(self.config)
        self.reload()

    def rules(self, text: str | None = None) -> int:
        """Give it one more rule file, or take that away, and have it read; the status of the answer."""
        path = self.folder / "site-more.yml"
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)
        return self.reload()

    def sabotage(self, **plan: object) -> None:
        """Do the daemon's threads harm from within; it must have been started with `SABOTAGE`."""
        (self.folder / "plan").write_text(json.dumps(plan))
        os.kill(self.pid, 10)


@contextmanager
def drilled(rig: Rig, *commands: str, sabotaged: bool = False) -> Iterator[Drill]:
    """A daemon whose driver was told these commands before; `sabotaged` is for one whose threads come to harm."""
    folder = Path(tempfile.mkdtemp(dir=rig.directory, prefix="drill-"))
    (folder / "site.yml").write_text(RULES)
    (folder / "sysfs").symlink_to(rig.sysfs)
    build.command(folder / "control", *commands)
    _tell_outsiders(folder, {})
    try:
        firmware = FakeFirmware(folder)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise CannotRunError(f"the stand-in for firmware that hangs cannot be compiled: {error}") from error
    environment = {build.CONTROL: str(folder / "control"), **firmware.environment}
    program: Sequence[str] = ()
    if sabotaged:
        program = (*SABOTAGE, json.dumps({"told": str(folder / "plan"), "settled": 2.0}))
        environment["PYTHONPATH"] = os.pathsep.join((str(rig.site), str(ROOT)))
    with ExitStack() as stack:
        state = folder / "state"
        limited = stack.enter_context(_small_file_system(state))
        ports = stack.enter_context(_outsiders(rig, folder))
        (folder / "peers.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{ports['peer']}"]}]))
        more = CONFIG.format(rules=folder, receiver=ports["receiver"])
        daemon = stack.enter_context(rig.coldplate(more=more, state=state, program=program, environment=environment))
        for pid in daemon.pids:
            prefer(pid, PRIORITY)
        yield Drill(daemon, folder, firmware, state, limited)


def _tell_outsiders(folder: Path, manners: Mapping[str, str]) -> None:
    fresh = folder / "manners.new"
    fresh.write_text(json.dumps({"receiver": "well", "peer": "well", **manners}))
    fresh.replace(folder / "manners")


@contextmanager
def _outsiders(rig: Rig, folder: Path) -> Iterator[dict[str, int]]:
    """The receiver and the peer; their ports."""
    command = [sys.executable, "-m", "tests.bench.outsiders", str(folder / "manners")]
    with Program(command, folder / "outsiders.log", rig.environment, ROOT) as program:
        until = time.monotonic() + START_PATIENCE
        while len(words := program.log.read_text().split()) < 4:
            if not program.alive or time.monotonic() > until:
                raise CannotRunError(f"the receiver and the peer do not serve: {program.log.read_text()[-500:]}")
            time.sleep(0.05)
        yield {words[0]: int(words[1]), words[2]: int(words[3])}


@contextmanager
def _small_file_system(path: Path) -> Iterator[bool]:
    """A folder that can be full: a file system of 8 MiB in memory, where mounting is allowed; whether it was."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
