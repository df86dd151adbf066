"""Thousands of nodes for a scale study: the pages of one simulated rack, served under as many names as are asked for.

`coldplate simulate` samples every node, which is more than a core can do for thousands. Here four nodes are sampled
once in a scrape interval, and each page is told again with the name of another rack and job. What scrapes cannot tell
the difference: series, values and their changes are those of real pages. One node in fifty has an alert that fires.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agent.commands.simulate.site_reader import SiteReader
from agent.commands.simulate.site_service import make_nodes
from agent.lib.typed_yaml import YamlFile
from agent.lib.wording import UserError
from exporters.encoder import Format

RACK, GPUS = 4, 8
INTERVAL_SECONDS = 15
ALERTING = 50
SITE = {"nodes_per_job": RACK, "racks": [{"count": 1, "nodes": RACK, "power_budget": "40.8kW"}]}
ALERT = (
    b'coldplate_alert{alertname="GpuImbalance",alertstate="firing",gpu="3",uuid="GPU-0",scheduler="slurm",'
    b'job_id="4711_0",severity="warning"} 1\n'
)
JOB = b'job_id="4711_0"'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
SLOW_GPU, MORE_WORK = (5, "3"), (9, "2")
"""Node and GPU."""
SLOW_RAIL, OTHER_PART = (12, "mlx5_4"), (20, "mlx5_[0-9]")
"""Node and device."""
HUNG_GPU = (33, "6")
"""Node and GPU that goes idle when the site is told to hang (GET /hang), while all others wait for it."""
_CLOCK, _TENSOR = "gpu_clock_mean_hertz", "gpu_tensor_active_mean_ratio"
_THROTTLED = "gpu_throttle_seconds_total"
_BYTES = "infiniband_port_data_(?:transmitted|received)_bytes_total"


def scraping(site: str, interval: str, rules: str = "") -> str:
    """Return a configuration that scrapes a canned site: of a Prometheus with these rule files, else of a vmagent."""
    evaluation = f", evaluation_interval: {interval}" if rules else ""
    return f"""
global: {{scrape_interval: {interval}{evaluation}, external_labels: {{cluster: main}}}}
{f"rule_files: ['{rules}']" if rules else ""}
scrape_configs:
- job_name: coldplate
  honor_labels: true
  http_sd_configs: [{{url: "{site}/sd"}}]
"""


class Plan(NamedTuple):
    """How the nodes work together, and how fast time passes there."""

    job_nodes: int = RACK
    pace: float = 1.0
    faults: bool = False


class CannedSite:
    """The pages of a rack, sampled anew once an interval, and the list of all that are served of them."""

    def __init__(self, nodes: int, address: str, plan: Plan) -> None:
        self._plan = plan
        self._began = time.time()
        site = SiteReader(YamlFile("the scale study", UserError, SITE), Path()).site()
        self._nodes = make_nodes(site, INTERVAL_SECONDS, int(self._began), "lean")
        self._texts: list[bytes] = []
        self._sampled = -1
        self._hung_at: float | None = None
        self.targets = json.dumps(
            [
                {
                    "targets": [address],
                    "labels": {
                        "__metrics_path__": f"/{each}",
                        "instance": f"node{each}:19400",
                        "rack": f"r{each // RACK}",
                    },
                }
                for each in range(nodes)
            ]
        ).encode()

    def page(self, number: int) -> bytes:
        tick = int((time.time() - self._began) * self._plan.pace / INTERVAL_SECONDS)
        if tick != self._sampled and self._hung_at is None:
            self._sampled = tick
            self._texts = [node.render(Format.TEXT, tick * INTERVAL_SECONDS) for node in self._nodes]
        rack, job = number // RACK, number // self._plan.job_nodes
        text = self._texts[number % RACK] + (b"" if number % ALERTING else ALERT)
        text = text.replace(b'rack="r1"', b'rack="r%d"' % rack).replace(JOB, b'job_id="4711_%d"' % job)
        text = injected(number, text) if self._plan.faults else text
        return text if self._hung_at is None else _hung(number, text, (time.time() - self._hung_at) * self._plan.pace)

    def hang(self) -> None:
        """Let all jobs wait from now on for the GPU that goes idle; nothing else changes any more."""
        self._hung_at = time.time()


class _Asked(asyncio.Protocol):
    def __init__(self, site: CannedSite) -> None:
        self._site, self._waiting = site, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._waiting = (self._waiting + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1]
            if path == b"/hang":
                self._site.hang()
            body, kind = (
                (self._site.targets, b"application/json")
                if path in (b"/sd", b"/hang")
                else (self._site.page(int(path[1:])), Format.TEXT.value.encode())
            )
            self._transport.write(HEAD % (kind, len(body)) + body)


def injected(number: int, page: bytes) -> bytes:
    """The page of the node of this number with its fault, if it has one."""
    if number == SLOW_GPU[0]:
        return _slowed(page, SLOW_GPU[1], work=1.0)
    if number == MORE_WORK[0]:
        return _slowed(page, MORE_WORK[1], work=1.2)
    for node, device in (SLOW_RAIL, OTHER_PART):
        if number == node:
            return _times(page, _BYTES, f'device="{device}"', 0.1)
    return page


def _slowed(page: bytes, gpu: str, work: float) -> bytes:
    """Return the page with a GPU at 0.85 of its clock, and so much of its work; it does not reach its power cap."""
    page = _times(page, _CLOCK, f'gpu="{gpu}"', 0.85)
    page = _times(page, _THROTTLED, f'gpu="{gpu}",.*reason="sw_power_cap"', 0)
    return _times(page, _TENSOR, f'gpu="{gpu}"', work / 0.85)


def _hung(number: int, page: bytes, seconds: float) -> bytes:
    """Return the page so many seconds after the last step: the GPUs spin, but for one, and the ports carry nothing."""
    idle = number == HUNG_GPU[0]
    gpu = f'gpu="[^{HUNG_GPU[1]}]"' if idle else 'gpu="'
    page = _times(page, "gpu_(?:tensor|sm|dram)_active(?:_mean)?_ratio", 'gpu="', 0.05)
    page = _times(page, "gpu_power_watts", 'gpu="', 0.25)
    page = _plus(page, "gpu_busy_seconds_total", gpu, seconds)
    page = _plus(page, "job_gpu_seconds_total", '.*state="awaited"', seconds * idle)
    return _plus(page, "job_gpu_seconds_total", '.*state="waiting"', seconds * (GPUS - idle))


def _times(page: bytes, name: str, label: str, factor: float) -> bytes:
    return _changed(page, name, label, lambda value: value * factor)


def _plus(page: bytes, name: str, label: str, more: float) -> bytes:
    return _changed(page, name, label, lambda value: value + more)


def _changed(page: bytes, name: str, label: str, change: Callable[[float], float]) -> bytes:
    lines = re.compile(rf"^(coldplate_{name}\{{{label}.*\}} )(\S+)$".encode(), re.MULTILINE)
    changed, count = lines.subn(lambda found: found[1] + b"%.12g" % change(float(found[2])), page)
    assert count, f"no {name} of {label} in the page"
    return changed


async def _serve(nodes: int, port: int, plan: Plan) -> None:
    site = CannedSite(nodes, f"127.0.0.1:{port}", plan)
    server = await asyncio.get_running_loop().create_server(lambda: _Asked(site), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fleet.canned_site")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--job-nodes", type=int, default=RACK, help="nodes of each job")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds of the simulation in a second")
    parser.add_argument("--faults", action="store_true", help="with the faults of single nodes")
    parsed = parser.parse_args()
    asyncio.run(_serve(parsed.nodes, parsed.port, Plan(parsed.job_nodes, parsed.pace, parsed.faults)))


if __name__ == "__main__":
    main()
