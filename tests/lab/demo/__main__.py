"""`make demo`: a simulated site of two racks with a fault every few minutes, a real Prometheus and a real Alertmanager.

It says which alert is expected at which minute, prints each alert as it arrives in Alertmanager, and ends with Ctrl-C.
The exit status is 0 if all that was due came, 1 if something did not, 2 if a program does not come up.
"""

import argparse
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent.commands.simulate.site_reader import read_site
from tests.deployment.compose_files import COMPOSE, ROOT, in_checkout, services
from tests.lab.bench.report import guarded
from tests.lab.demo.announcements import Announcement, Watch, announcements, minute
from tests.lab.fleet.engines import Engine, Engines, Inbox, program, say
from tests.servers import fetch

SITE = Path(__file__).parent / "site.yaml"
LONGEST_SECONDS = 24 * 3600.0
ROUND_SECONDS = 20 * 60.0
"""After this long the site repeats its faults."""
POLL_SECONDS = 1.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SITE_PORT, PROMETHEUS_PORT, ALERTMANAGER_PORT = 19500, 9090, 9093


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.demo")
    parser.add_argument("--minutes", type=float, default=LONGEST_SECONDS / 60, help="end after this long")
    seconds = parser.parse_args(arguments).minutes * 60
    watch = Watch(announcements(read_site(SITE), min(seconds, LONGEST_SECONDS)))
    with (
        tempfile.TemporaryDirectory(prefix="coldplate-demo-") as folder,
        Inbox() as inbox,
        Engines(Path(folder)) as engines,
        suppress(KeyboardInterrupt),
    ):
        try:
            run(engines, inbox, watch, seconds)
        finally:  # a second Ctrl-C must not leave a program behind
            for each in STOPS:
                signal.signal(each, signal.SIG_IGN)
    say(f"stopped; {len(watch.came)} announced alerts came, {len(watch.missed)} did not")
    return 1 if watch.missed else 0


def run(engines: Engines, inbox: Inbox, watch: Watch, seconds: float) -> None:
    """Start the programs, say what will happen, and print what happens. Raises CannotRunError, KeyboardInterrupt."""
    alertmanager = engines.alertmanager(inbox.url, port=usual(ALERTMANAGER_PORT))
    site = engines.simulation(str(SITE), "--log.level", "warn", port=usual(SITE_PORT))
    began = time.monotonic()
    config = server_config(site.url, alertmanager.url)
    prometheus = engines.prometheus("prometheus", yaml.safe_dump(config), *assets(), port=usual(PROMETHEUS_PORT))
    introduce(site, prometheus, alertmanager, engines.folder, watch.announced)
    while (now := time.monotonic() - began) < seconds:
        for line in watch.lines(alerts(alertmanager), now):
            say(line)
        time.sleep(POLL_SECONDS)


def usual(port: int) -> int | None:
    """Return the port, or None if it is taken, so that any free one is used."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return None
    return port


def server_config(site: str, alertmanager: str) -> dict[str, Any]:
    """Return the configuration of packaging/compose with the addresses and paths of this machine."""
    config: dict[str, Any] = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    container = services()["prometheus"]
    config["rule_files"] = [str(in_checkout(container, each)) for each in config["rule_files"]]
    (alerting,) = config["alerting"]["alertmanagers"]
    alerting["static_configs"] = [{"targets": [urlsplit(alertmanager).netloc]}]
    (scrape,) = config["scrape_configs"]
    (discovery,) = scrape["http_sd_configs"]
    discovery["url"] = f"{site}{urlsplit(discovery['url']).path}"
    return config


def introduce(
    site: Engine, prometheus: Engine, alertmanager: Engine, folder: Path, announced: Sequence[Announcement]
) -> None:
    say("A simulated site of two racks, eight nodes and 64 GPUs. Open:")
    say(f"  {site.url}/  the nodes, and their metrics")
    shown = [path for path in ("/alerts", "/classic/alerts") if page(prometheus.url + path)]
    say(f"  {prometheus.url}{(*shown, '/api/v1/alerts')[0]}  Prometheus: rules, and what fires")
    if "does not include a web" in page(alertmanager.url):  # Debian's
        say("and for the alerts in Alertmanager, which has no pages here, run:")
        say(f"  {named('amtool')} --alertmanager.url={alertmanager.url} alert query")
    else:
        say(f"  {alertmanager.url}/#/alerts  Alertmanager: the alerts")
    say(f"Logs are in {folder}. What will happen, in minutes from now, and again every 20 minutes until Ctrl-C:")
    for each in announced:
        if each.at < ROUND_SECONDS:
            due = minute(each.at + each.effect.within_seconds)
            names = " and ".join(filter(None, [each.effect.alert, each.effect.also]))
            say(f"  minute {each.minute:2}: {each.effect.cause}; {names} on {each.place}, by minute {due}")


def named(name: str) -> str:
    """Return a program as a person types it in the checkout."""
    found = Path(shutil.which(name) or name)
    return str(found.relative_to(ROOT)) if found.is_relative_to(ROOT) else name


def assets() -> list[str]:
    """Return the option that Debian's Prometheus needs to find its pages, which lie beside it where it was unpacked."""
    folder = Path(shutil.which(program("prometheus")) or "").resolve().parents[1] / "share" / "prometheus" / "web"
    return [f"--web.local-assets={folder}"] if folder.is_dir() else []


def page(url: str) -> str:
    with suppress(OSError):
        return fetch(url, 10)
    return ""


def alerts(alertmanager: Engine) -> list[dict[str, Any]]:
    """Return what Alertmanager holds, inhibited alerts as well; nothing if it does not answer."""
    with suppress(OSError):
        found: list[dict[str, Any]] = alertmanager.json("/api/v2/alerts")
        return found
    return []


if __name__ == "__main__":
    sys.exit(guarded(main, cannot_run=2))
