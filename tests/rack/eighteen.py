"""Eighteen agents of a rack that draws too much are restarted one after the other: nobody is told of anything else.

`python -m tests.rack.eighteen` (with --kill by SIGKILL) starts the agents and an Alertmanager, lets the rack's power
step to 160% of its budget, restarts each agent, and prints what Alertmanager holds. Of all rack alerts, `RackPowerHigh`
alone may come to it, and must never be resolved. The status is 0 then, 1 otherwise, and 2 where the machine is too slow
for a verdict: an agent was not ready before the step.

The overrun is every node's own, too: what else there is at Alertmanager is told, and is no part of the verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.rack.conftest import Daemon
from tests.servers import Alertmanager, fetch, free_ports

NODES = 18
SCENARIO = """
description: Training, and node power that steps up by 9 kW, {after:.1f} s after the agent's start.
topology: dgx-h100
seed: {seed}
jobs:
  - {{id: "6018", name: llama-pretrain, user: ada, gpus: all, parallelism: data, memory: 0.85,
     phases: [{{kind: training}}]}}
faults:
  - {{kind: node-power, at: {after:.1f}s, watts: 9kW, ramp: 0s}}
"""
CONFIG = """
node: {{name: node{number:02}}}
rack: {{name: r18, power_budget: 185kW, node_nameplate: 12kW, peers: [{peers}]}}
backends: {{host: false}}
notify: {{alertmanager: {{urls: ["{alertmanager}"]}}, resend: 5s}}
"""
ROUTED = """
route: {{receiver: told, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: told, webhook_configs: [{{url: "http://127.0.0.1:{port}/", send_resolved: true}}]}}]
"""
LATE = 60.0
"""Seconds within which the agents of a busy machine begin: a scenario goes by the clock of its agent."""
BEFORE, AFTER = 10.0, 30.0
"""Seconds for which `RackPowerHigh` is there before the first restart, and after the last."""
AWAY, BETWEEN = 2.0, 4.0
"""Seconds for which an agent is down, and between the end of one and the end of the next."""


TRIP = "RackPowerHigh(trip)"
SWITCH = 5.0
"""Seconds for which a lower level may still be there beside it: agents do not all evaluate at one moment."""


def named(labels: dict[str, str]) -> str:
    """An alert by its name and level."""
    return f"{labels['alertname']}({labels.get('level', '')})"


class Receiver:
    """Whom Alertmanager notifies: the last to know that something is over, and the one who must not be told."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, str]] = []
        notices = self.notices

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                notices.extend((named(each["labels"]), each["status"]) for each in told["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Rackful:
    """The agents, what they tell, and what is wrong with it."""

    def __init__(self, folder: Path, settle: float, remember: bool) -> None:
        self.receiver = Receiver()
        self.alertmanager = Alertmanager(folder)
        (folder / "alertmanager.yml").write_text(ROUTED.format(port=self.receiver.port))
        self.alertmanager.start()
        self.folder, self.remember = folder, remember
        self.ports = free_ports(NODES)
        self.began = time.monotonic()
        self.onset = self.began + settle
        self.agents: list[Daemon] = []
        self.tripped = math.inf
        self.wrong: list[str] = []
        self.started: dict[str, str] = {}
        self.seen: dict[str, float] = {}

    def start(self, number: int) -> Daemon:
        """An agent for which the power steps up at the onset, or has done so."""
        after = max(0.0, self.onset - time.monotonic())
        scenario = self.folder / f"{number}.scenario.yaml"
        scenario.write_text(SCENARIO.format(after=after, seed=number + 1))
        config = CONFIG.format(
            number=number, alertmanager=self.alertmanager.url,
            peers=", ".join(f"'127.0.0.1:{port}'" for port in self.ports),
        )  # fmt: skip
        if self.remember:
            config += f"state_dir: {self.folder / f'state{number}'}\n"
        return Daemon(self.ports[number], self.folder, config, "--scenario", str(scenario))

    def complete(self) -> bool:
        """Whether each agent hears all others."""
        return all(agent.rack().get("nodes_reporting") == NODES for agent in self.agents)

    def held(self) -> list[dict[str, Any]]:
        """What is active at Alertmanager."""
        found: list[dict[str, Any]] = json.loads(fetch(f"{self.alertmanager.url}/api/v2/alerts?active=true"))
        return found

    def look(self) -> str:
        """Judges what Alertmanager holds now; a line about it."""
        now = time.monotonic() - self.onset
        held = self.held()
        rack = [each for each in held if each["labels"]["alertname"].startswith("Rack")]
        names = {named(each["labels"]): each for each in rack}
        lower = self.tripped + SWITCH if self.remember else math.inf  # an agent that forgets begins its means anew
        for name, each in names.items():
            self.seen.setdefault(name, now)
            if name != TRIP and not (name.startswith("RackPowerHigh(") and now < lower):
                self.complain(f"{name} is at Alertmanager")
            if name == TRIP and TRIP not in self.started:
                self.tripped = now
            if name == TRIP and each["startsAt"] > self.started.setdefault(name, each["startsAt"]):
                self.complain(f"{name} began anew at {each['startsAt']}")
        for name in self.started.keys() - names.keys():
            self.complain(f"{name} is gone from Alertmanager")
        if (TRIP, "resolved") in self.receiver.notices:
            self.complain(f"the receiver was told that {TRIP} is resolved")
        others = sorted({each["labels"]["alertname"] for each in held} - {each["labels"]["alertname"] for each in rack})
        for name in others:
            self.seen.setdefault(name, now)
        return f"{now:+6.0f} s  {', '.join(names) or 'no rack alert'}" + (f"; also {', '.join(others)}" * bool(others))

    def complain(self, text: str) -> None:
        if text not in self.wrong:
            self.wrong.append(text)
            say(f"WRONG at {time.monotonic() - self.onset:+.1f} s: {text}")

    def watch(self, seconds: float) -> None:
        """Looks twice a second, and says what there is every three."""
        end, said = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            line = self.look()
            if time.monotonic() - said > 3:
                said = time.monotonic()
                say(line)
            time.sleep(0.5)

    def restart(self, number: int, how: int) -> None:
        self.agents[number].stop(how)
        self.watch(AWAY)
        self.agents[number] = self.start(number)
        self.watch(BETWEEN - AWAY)

    def judge(self) -> None:
        """What each agent itself says in the end."""
        for number, agent in enumerate(self.agents):
            alerts = json.loads(agent.get("/api/v1/alerts"))["data"]["alerts"]
            own = {named(each["labels"]): each for each in alerts if each["labels"]["alertname"].startswith("Rack")}
            for name, each in own.items():
                if each["state"] != "firing":
                    say(f"node{number:02}: {name} is pending since {each['activeAt']}, value {each['value']}")
            firing = sorted(name for name, each in own.items() if each["state"] == "firing")
            if firing != [TRIP]:
                self.complain(f"node{number:02} itself says {firing}")

    def close(self) -> None:
        for agent in self.agents:
            with suppress(Exception):
                agent.stop(signal.SIGKILL)
        self.alertmanager.stop()
        self.receiver.close()


def say(text: str) -> None:
    print(text, flush=True)


def play(rack: Rackful, how: int) -> int:
    """The status."""
    for number in range(NODES):
        rack.agents.append(rack.start(number))
        time.sleep(0.5)
    while not (rack.complete() and not rack.held()):
        if time.monotonic() > rack.onset - 5:
            say(f"the machine is too slow: not ready before the step, {rack.look()}; try a longer --settle")
            return 2
        time.sleep(1)
    say(f"all {NODES} agents hear each other after {time.monotonic() - rack.began:.0f} s, and nothing fires")
    while time.monotonic() < rack.onset:
        if rack.held():
            rack.complain(f"before the step: {rack.look()}")
        time.sleep(1)
    while not rack.started and time.monotonic() < rack.onset + LATE:
        rack.watch(1)
    if not rack.started:
        rack.complain("no RackPowerHigh at Alertmanager")
    rack.watch(BEFORE)
    for number in range(NODES):
        rack.restart(number, how)
        say(f"restarted {number + 1} of {NODES}")
    rack.watch(AFTER)
    rack.judge()
    for name, at in rack.seen.items():
        say(f"{name}: at Alertmanager from {at:+.1f} s on")
    say("\n".join(rack.wrong) or "Of all rack alerts only RackPowerHigh was there, and never resolved.")
    return 1 if rack.wrong else 0


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 where all was well, 1 where not, 2 for a mistake or a machine that is too slow."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.rack.eighteen", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--kill", action="store_true", help="end agents with SIGKILL, not SIGTERM")
    parser.add_argument("--forget", action="store_true", help="agents without a state directory")
    parser.add_argument("--settle", type=float, default=90.0, help="seconds until the power steps up (default 90)")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rack = Rackful(Path(folder), parsed.settle, not parsed.forget)
        try:
            return play(rack, signal.SIGKILL if parsed.kill else signal.SIGTERM)
        finally:
            rack.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
