"""`make fleet`: starts a fleet on the loopback interface, takes a rack's power away, and sees who is told what.

The exit status is 0 if the rack is one notification, whoever found it, and its nodes are none; 1 if not, 2 if a program
does not come up. ARGS=--stay leaves all running until Ctrl-C, for a look around.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.lab.bench.report import guarded
from tests.lab.fleet.engines import Engine, Engines, Inbox, say
from tests.lab.fleet.whole_fleet import RACK, RACKS, Fleet

LOST = "r2"
AT_SECONDS = 45.0
"""When the rack loses its power, after the site starts: by then all is scraped."""
PATIENCE_SECONDS = 110.0
CALM_SECONDS = 15.0
"""How long nobody may be told anything more."""
LABELS = {"alertname", "cluster", "instance", "job", "rack", "severity"}


class FleetError(Exception):
    """What did not hold."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fleet")
    parser.add_argument("--stay", action="store_true", help="leave all running until Ctrl-C")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="coldplate-fleet-") as place, Inbox() as inbox:
        try:
            with Engines(Path(place)) as engines:
                fleet = Fleet(engines, inbox, LOST, AT_SECONDS)
                for name, engine in engines.running.items():
                    say(f"  {name:14} {engine.url}")
                say(f"  logs           {engines.folder}")
                for line in checked(fleet, inbox):
                    say(line)
                while parsed.stay:
                    time.sleep(60)
        except FleetError as error:
            print(f"does not hold: {error}", file=sys.stderr)
            return 1
    return 0


def checked(fleet: Fleet, inbox: Inbox) -> Iterator[str]:
    nodes = RACK * RACKS
    for store in fleet.stores:
        until(f"{store.name} has all nodes", lambda store=store: value(store, "count(up)") == nodes)
    parts = [value(shard, 'count(up{job="coldplate"})') for shard in fleet.shards]
    expect(sum(parts) == nodes and min(parts) > 0, f"the shards share {nodes} nodes: {parts}")
    yield f"each node is scraped by one shard ({' + '.join(f'{each:.0f}' for each in parts)}) and is in both stores"
    until("both stores have the same sum over the cluster", lambda: len(set(sums(fleet))) == 1 and sums(fleet)[0] > 0)
    yield "the sums over the cluster are the same in both stores"

    until("somebody is told of the rack", lambda: [each for each in inbox.told if each.receiver == "pager"])
    until("its nodes are known to be down", lambda: len(alerts(fleet, "AgentDown")) == RACK)
    time.sleep(CALM_SECONDS)
    paged = [each for each in inbox.told if each.receiver == "pager"]
    words = [f"{each.group}: {each.names}" for each in paged]
    expect(len(paged) == 1, f"one page was wanted, there are {len(paged)}: {words}")
    expect(paged[0].group == {"cluster": "main", "rack": LOST}, f"it is about {paged[0].group}")
    expect(paged[0].names == ["RackAgentsDown"] and len(paged[0].alerts) == 1, f"it tells {paged[0].alerts}")
    yield f"rack {LOST} without power is one page with one alert: {paged[0].alerts[0]['annotations']['summary']}"
    racks, down = alerts(fleet, "RackAgentsDown"), alerts(fleet, "AgentDown")
    expect(len(racks) == 1, f"one alert was wanted, there are {[each['labels'] for each in racks]}")
    expect(set(racks[0]["labels"]) == LABELS - {"instance", "job"}, f"labels of who found it: {racks[0]['labels']}")
    expect(len(down) == RACK, f"{RACK} alerts were wanted, there are {[each['labels'] for each in down]}")
    expect(all(set(each["labels"]) == LABELS for each in down), f"labels of who found it: {down[0]['labels']}")
    expect(all(each["status"]["inhibitedBy"] for each in down), f"not inhibited: {down}")
    finders = [each.name for each in (*fleet.shards, *fleet.vmalerts) if "AgentDown" in names_of(each)]
    expect(len(finders) == 2 and "vmalert-0" in finders, f"one shard and vmalert-0 were to find them, not {finders}")
    yield f"its {RACK} nodes are one alert each, though {' and '.join(finders)} found them, and inhibited by the rack's"
    others = sorted({f"{each.receiver}: {', '.join(each.names)}" for each in inbox.told if each.receiver != "pager"})
    yield f"all others were told: {'; '.join(others) or 'nothing'}"


def sums(fleet: Fleet) -> list[float]:
    """The GPUs of the cluster, as each store has them."""
    return [value(store, "cluster:gpus_up:sum") for store in fleet.stores]


def alerts(fleet: Fleet, name: str) -> list[dict[str, Any]]:
    return [each for each in fleet.alertmanager.json("/api/v2/alerts") if each["labels"]["alertname"] == name]


def names_of(server: Engine) -> set[str]:
    """The alerts that a Prometheus or a vmalert itself has found."""
    found = server.json("/api/v1/alerts")["data"]["alerts"]
    return {each["labels"].get("alertname", each.get("name")) for each in found if each["state"] == "firing"}


def value(engine: Engine, query: str) -> float:
    """The sum of what a query gives; 0 where it gives nothing."""
    return sum(float(each["value"][1]) for each in engine.ask(query))


def expect(held: bool, otherwise: str) -> None:
    if not held:
        raise FleetError(otherwise)


def until(what: str, condition: Callable[[], object]) -> None:
    """Wait until it holds. Raises FleetError."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise FleetError(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(guarded(main, cannot_run=2))
