"""The machine as the checks see it: commands, units, the agent's page. Standard library alone."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

URL = "http://127.0.0.1:19400"
CONTROL = Path("/run/stand-in/control")
CONFIG = Path("/etc/coldplate/coldplate.yaml")
UNIT = "coldplate.service"

Labels = dict[str, str]


class CheckError(Exception):
    """A check did not see what it should; the text says what it saw."""


def sh(*command: str, check: bool = True) -> str:
    """What a command printed. Raises CheckError where it does not end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    if check and done.returncode:
        raise CheckError(f"{' '.join(command)}: status {done.returncode}: {said[-600:]}")
    return said


def until(what: str, holds: Callable[[], object], seconds: float = 15.0) -> float:
    """Wait until something holds; how many seconds it took. Raises CheckError."""
    began = time.monotonic()
    last: object = None
    while True:
        try:
            last = holds()
        except (OSError, CheckError) as error:
            last = error
        else:
            if last:
                return time.monotonic() - began
        if time.monotonic() - began > seconds:
            raise CheckError(f"not within {seconds:.0f} s: {what}; last: {str(last)[-400:]}")
        time.sleep(0.1)


def show(prop: str, unit: str = UNIT) -> str:
    return sh("systemctl", "show", "--value", f"--property={prop}", unit)


def main_pid(unit: str = UNIT) -> int:
    """The unit's process. Raises CheckError where it has none."""
    pid = int(show("MainPID", unit))
    if pid == 0:
        raise CheckError(f"{unit} has no process: {active(unit)}, {show('Result', unit)}: {journal(unit)[-400:]}")
    return pid


def active(unit: str = UNIT) -> str:
    return show("ActiveState", unit)


def unit_file(unit: str = UNIT) -> Path:
    """Where a unit lies: where `make install` puts it, or a package."""
    return Path(show("FragmentPath", unit))


def journal(unit: str = UNIT) -> str:
    return sh("journalctl", "--no-pager", "--output=cat", f"--unit={unit}", check=False)


def fetch(path: str) -> str:
    with urllib.request.urlopen(URL + path, timeout=10) as answer:
        return str(answer.read().decode())


_LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series(name: str) -> list[tuple[Labels, float]]:
    """Labels and value of each series of a metric on the page."""
    found = []
    for line in fetch("/metrics").splitlines():
        match = _LINE.match(line)
        if match and match[1] == name:
            found.append((dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return found


def total(name: str, **labels: str) -> float:
    return sum(value for own, value in series(name) if labels.items() <= own.items())


def one(name: str, **labels: str) -> Labels:
    """The labels of the only such series. Raises CheckError where there is none, or several."""
    found = [own for own, _ in series(name) if labels.items() <= own.items()]
    if len(found) != 1:
        raise CheckError(f"{len(found)} series {name} with {labels}: {found}")
    return found[0]


def missing() -> dict[str, str]:
    """coldplate_metric_missing: metric to reason."""
    return {own["metric"]: own["reason"] for own, _ in series("coldplate_metric_missing")}


def details() -> str:
    return json.dumps(json.loads(fetch("/api/v1/snapshot")))


def alerts(name: str) -> list[dict[str, str]]:
    """State, start and value of the alerts of that name."""
    listed = json.loads(fetch("/api/v1/alerts"))["data"]["alerts"]
    return [each for each in listed if each["labels"]["alertname"] == name]


def command(*lines: str) -> None:
    """What the stand-in for the driver shall do from now on, in the place of what it was told before."""
    CONTROL.parent.mkdir(parents=True, exist_ok=True)
    fresh = CONTROL.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.replace(CONTROL)


def configure(text: str) -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(text)


def ready() -> None:
    """Wait until the agent says that its last sample is fresh."""
    until("ready", lambda: fetch("/-/ready"), 60.0)


def worker_pid() -> int:
    """The device worker: the daemon's child."""
    daemon = main_pid()
    for task in Path(f"/proc/{daemon}/task").iterdir():
        for pid in (task / "children").read_text().split():
            return int(pid)
    raise CheckError("the daemon has no child")


def status(pid: int | str) -> Labels:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


Check = Callable[[], str]
"""Does something and says what it saw. Raises CheckError."""
CHECKS: list[tuple[str, Check]] = []


def check(name: str) -> Callable[[Check], Check]:
    """Enter a function into the table."""

    def enter(function: Check) -> Check:
        CHECKS.append((name, function))
        return function

    return enter
