"""A daemon with everything around it that can fall sick, and the means to make it so."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from tests.daemon.conftest import samples
from tests.fakes.firmware.preload import FakeFirmware
from tests.fakes.nvml import build
from tests.lab.bench import client
from tests.lab.bench.processes import children, prefer, started
from tests.lab.bench.report import CannotRunError
from tests.lab.bench.rig import ROOT, Daemon, Rig

GPUS = 8
PORT = "mlx5_3"
ADAPTER = f"{PORT}/ports/1/"
SETTLED_AFTER = 60.0
"""Seconds within which a daemon that was started is to be well."""

RULES = Path(__file__).with_name("drilled.rules.yml").read_text()
CONFIG = Path(__file__).with_name("drilled.yaml").read_text()
FIRING, PENDING = "Always", "Waits"
"""The alerts of RULES that are to survive everything."""
MOUNT = ("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs")
SABOTAGE = ("-m", "tests.lab.drill.sabotage")

DEVICES = ("coldplate_gpu_up", "coldplate_infiniband_port_up", "coldplate_worker_up", "coldplate_backend_up")
"""What a page has to show as it did before the fault, for the devices to be back."""
STATE_WRITTEN = "coldplate_state_write_successful"
EVERYTHING = (
    *DEVICES,
    "coldplate_thread_up",
    "coldplate_config_last_reload_successful",
    STATE_WRITTEN,
    "coldplate_rack_peer_up",
    "coldplate_metric_missing",
)
"""What it has to show besides, for all to be well."""
FRESH = 3.0
"""Seconds that a sample may be old on a page that is well."""


class Page:
    def __init__(self, text: str) -> None:
        self._values = defaultdict[str, dict[tuple[tuple[str, str], ...], float]](dict)
        for name, labels, value in samples(text):
            self._values[name][tuple(labels.items())] = value
        self._is_empty = not self._values

    def family(self, name: str, label: str = "") -> dict[str, float]:
        """Values of one metric by one of its labels; added up where several have the same."""
        found = Counter[str]()
        for labels, value in self._values[name].items():
            found[dict(labels).get(label, "")] += value  # type: ignore[assignment]  # a counter takes any number
        return dict(found)

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's values, of those series that have these labels."""
        return sum(value for own, value in self._values[name].items() if labels.items() <= dict(own).items())

    @property
    def fires(self) -> bool:
        return self.total("coldplate_alert", alertname=FIRING, alertstate="firing") == 1

    def differs(self, before: Page, names: Sequence[str]) -> str:
        """What is not as it was of these metrics, or not fresh; empty if nothing.

        An empty page says of nothing how it was.
        """
        for name in names:
            was, now = before._values[name], self._values[name]
            keys = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
            # A thread that has begun meanwhile, such as one that writes a file, is no harm.
            if name == "coldplate_thread_up":
                keys = [key for key in keys if key in was or not now[key]]
            if keys and not before._is_empty:
                return f"{name}{dict(keys[0])}"
        for name in ("coldplate_gpu_sample_age_seconds", "coldplate_sample_age_seconds"):
            if any(age > FRESH for age in self._values[name].values()):
                return f"{name} above {FRESH:.0f} s"
        return ""


class Drill:
    """One daemon, the files that it reads, and those whom it talks to."""

    def __init__(
        self,
        start: Callable[[Path | None], AbstractContextManager[Daemon]],
        folder: Path,
        firmware: FakeFirmware,
        state: Path,
        limited: bool,
    ) -> None:
        self._start = start
        self._running = ExitStack()
        self.daemon = self._running.enter_context(start(None))
        self._prefer()
        self.killed = 0.0
        """The monotonic second at which the daemon was last killed by `kill_and_restart`."""
        self.folder = folder
        self.firmware = firmware
        self.state = state
        self.limited = limited
        """Whether the state directory is a small file system of its own."""
        self.config = self.daemon.folder / "coldplate.yaml"
        self.good = self.config.read_text()
        self.sysfs = folder / "sysfs"

    def close(self) -> None:
        self._running.close()

    def _prefer(self) -> None:
        for pid in self.daemon.pids:
            prefer(pid)

    def kill_and_restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """SIGKILL, whatever it is doing, and another daemon in the same place, on another port."""
        os.kill(self.pid, signal.SIGKILL)
        self.killed = time.monotonic()
        self._running.close()
        meanwhile()
        self.daemon = self._running.enter_context(self._start(self.daemon.folder))
        self._prefer()

    @property
    def pid(self) -> int:
        return self.daemon.pids[0]

    @property
    def worker(self) -> int:
        return children(self.pid)[0]

    @property
    def log(self) -> str:
        return (self.daemon.folder / "log").read_text(errors="replace")

    def _ask(self, path: str, method: str = "GET", timeout: float = 10.0) -> str | None:
        """The page; None without one, or with an error."""
        with suppress(OSError, ValueError):
            return client.scrape(self.daemon.address, path, method=method, timeout=timeout).text
        return None

    def page(self) -> Page | None:
        text = self._ask("/metrics")
        return None if text is None else Page(text)

    def healthy(self) -> bool:
        return self._ask("/-/healthy") is not None

    def active_since(self) -> dict[str, int]:
        """Since when the alerts are active that are to survive everything, seconds; empty without an answer."""
        alerts = json.loads(self._ask("/api/v1/alerts") or '{"data": {"alerts": []}}')["data"]["alerts"]
        begun = {each["labels"]["alertname"]: each["activeAt"] for each in alerts}
        return {name: round(_seconds(begun[name])) for name in (FIRING, PENDING) if name in begun}

    def driver(self, *commands: str) -> None:
        build.command(self.folder / "control", *commands)

    def behave(self, **manners: str) -> None:
        """Tell the receiver, the peer and the management controller how to answer from now on; by default, well."""
        _tell_outsiders(self.folder, manners)

    def reload(self) -> bool:
        """Have the configuration read again; whether it was taken."""
        return self._ask("/-/reload", "POST", 60.0) is not None

    def configure(self, put: Callable[[Path], object] | None = None) -> None:
        """Put something in the place of the configuration, or what belongs there, and have it read."""
        self.config.unlink(missing_ok=True)
        (put or (lambda path: path.write_text(self.good)))(self.config)
        self.reload()

    def rules(self, text: str = "") -> bool:
        """Give it one more rule file, or take that away, and have it read; whether it was taken."""
        path = self.folder / "site-more.yml"
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text)
        return self.reload()

    def take_port(self) -> None:
        """As after a surprise removal: files that are open say so."""
        (self.sysfs / "class/infiniband" / PORT).rename(self.folder / PORT)
        self.firmware.command(f"fail {errno.ENODEV} {ADAPTER}")

    def bring_port(self) -> None:
        (self.folder / PORT).rename(self.sysfs / "class/infiniband" / PORT)
        self.firmware.command()

    def hang_up(self, config: str) -> None:
        """Have this configuration read, as `kill -HUP` does."""
        self.config.write_text(config)
        os.kill(self.pid, signal.SIGHUP)

    def sabotage(self, **plan: object) -> None:
        """Do the daemon's threads harm from within; it must have been started with `SABOTAGE`."""
        (self.folder / "plan").write_text(json.dumps(plan))
        os.kill(self.pid, 10)


def _seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text.replace("Z", "+00:00")).timestamp()


@contextmanager
def drilled(rig: Rig, *commands: str, sabotaged: bool = False, fast: str = "1s", further: str = "") -> Iterator[Drill]:
    """A daemon whose driver was told these commands before; `sabotaged` is for one whose threads come to harm.

    It samples at the period `fast`, and `further` sections go to the end of its configuration.
    """
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
        program = (*SABOTAGE, str(folder / "plan"))
        environment["PYTHONPATH"] = os.pathsep.join((str(rig.site), str(ROOT)))
    with ExitStack() as stack:
        state = folder / "state"
        limited = stack.enter_context(_small_file_system(state))
        ports = stack.enter_context(_outsiders(rig, folder))
        (folder / "peers.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{ports['peer']}"]}]))
        more = CONFIG.format(rules=folder, receiver=ports["receiver"], controller=ports["controller"]) + further

        def start(before: Path | None) -> AbstractContextManager[Daemon]:
            return rig.coldplate(fast, True, more, state, program, environment, before)

        drill = Drill(start, folder, firmware, state, limited)
        stack.callback(drill.close)
        yield drill


def _tell_outsiders(folder: Path, manners: Mapping[str, str]) -> None:
    fresh = folder / "manners.new"
    fresh.write_text(json.dumps({"receiver": "well", "peer": "well", "controller": "well", **manners}))
    fresh.replace(folder / "manners")


@contextmanager
def _outsiders(rig: Rig, folder: Path) -> Iterator[dict[str, int]]:
    command = [sys.executable, "-m", "tests.lab.drill.outsiders", str(folder / "manners")]
    with started(command, folder / "outsiders.log", rig.environment, ROOT) as program:
        program.wait_for("the receiver, the peer or the management controller", lambda log: len(log.split()) >= 6)
        words = program.log.read_text().split()
        yield {name: int(port) for name, port in zip(words[::2], words[1::2], strict=True)}


@contextmanager
def _small_file_system(path: Path) -> Iterator[bool]:
    """A folder that can be full: a file system of 8 MiB in memory, where mounting is allowed; whether it was."""
    path.mkdir()
    mounted = subprocess.run([*MOUNT, str(path)], capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
