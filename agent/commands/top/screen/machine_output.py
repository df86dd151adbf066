"""The same view for programs: JSON with everything, CSV with a row for each GPU. What is absent is null or empty."""

import csv
import io
import json
from typing import Any

from agent.commands.top.screen.node_samples import NVLINK, PCIE
from agent.commands.top.screen.node_view import GpuView, NodeView, PortView
from agent.commands.top.screen.view_builder import ScreenData
from agent.lib.wording import utc
from agent.model import Alert
from exporters.landing_parts import name_of

_VALUES = (
    "utilization_ratio", "memory_activity_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio",
    "memory_used_bytes", "memory_total_bytes", "power_watts", "power_limit_watts", "temperature_celsius",
    "memory_temperature_celsius", "temperature_margin_celsius",
)  # fmt: skip
"""Metrics of a GPU by their names without `coldplate_gpu_`: columns of the CSV and keys of the JSON."""


def as_json(scene: ScreenData) -> str:
    """Return one object: `nodes`, each with its GPUs, ports and alerts, and `troubles`, the worst first. Base units."""
    content = {
        "troubles": [{"tone": headline.tone.name.lower(), "text": headline.text} for headline in scene.troubles],
        "nodes": [_node(node) for node in scene.nodes],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _node(node: NodeView) -> dict[str, Any]:
    return {
        "node": node.name,
        "origin": node.origin,
        "problem": node.problem or None,
        "timestamp": node.wall,
        "age_seconds": node.age,
        "synthetic": node.scenario,
        "power_watts": node.power,
        "power_source": node.power_source or None,
        "host_load1": node.host_load[0] if node.host_load else None,
        "host_cpus": node.host_load[1] if node.host_load else None,
        "host_memory_used_bytes": node.host_memory[0] if node.host_memory else None,
        "host_memory_total_bytes": node.host_memory[1] if node.host_memory else None,
        "rack": node.rack or None,
        "rack_power_watts": node.rack_power,
        "rack_power_budget_watts": node.rack_budget,
        "gpus_expected": node.expected,
        "gpus": [{**_gpu(gpu), "processes": _processes(node, gpu)} for gpu in node.gpus],
        "ports": [_port(port) for port in node.ports],
        "alerts": None if node.alerts is None else [_alert(alert) for alert in node.alerts],
        "unjudged": node.unjudged or None,
    }


def _gpu(gpu: GpuView) -> dict[str, Any]:
    return {
        "gpu": gpu.index,
        "uuid": gpu.row.gpu.uuid or None,
        "model": gpu.row.facts.get("model"),
        "up": gpu.row.up,
        "state": gpu.word or None,
        **{name: gpu.value(name) for name in _VALUES},
        "clock_sm_hertz": gpu.value("clock_hertz"),
        "throttle_reasons": gpu.row.throttles if gpu.row.up and gpu.row.has_throttle_readings else None,
        "nvlinks_up": gpu.row.links_up if gpu.row.links else None,
        "nvlinks": gpu.row.links or None,
        "driver_version": gpu.row.facts.get("driver_version"),
        "ecc_errors": gpu.row.ecc_errors or None,
        "nvlink_bytes_per_second": gpu.rate(*NVLINK),
        "pcie_bytes_per_second": gpu.rate(*PCIE),
        "jobs": [{**job} for job in gpu.row.jobs],
        "conditions": [
            {"alert": alert.rule, "state": alert.phase.value, "severity": alert.severity.value}
            for alert in gpu.row.conditions
        ],
    }


def _processes(node: NodeView, gpu: GpuView) -> list[dict[str, Any]] | None:
    listed = (node.processes or {}).get(gpu.row.gpu)
    if listed is None:
        return None
    return [
        {
            "pid": process.pid,
            "user": process.user or None,
            "memory_bytes": process.memory,
            "command": process.command or None,
        }
        for process in listed
    ]


def _port(port: PortView) -> dict[str, Any]:
    return {
        "port": port.name,
        "state": port.state.word,
        "speed_bytes_per_second": port.state.rate,
        "received_bytes_per_second": port.received,
        "transmitted_bytes_per_second": port.sent,
        "errors_last_minute": {**port.growth},
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.rule,
        "state": alert.phase.value,
        "labels": dict(alert.labels),
        **{name: alert.annotations.get(name) for name in ("summary", "description", "changes", "command")},
        "active_at": alert.active_at,
        "fires_at": alert.fires_at,
        "inhibited_by": alert.inhibited_by or None,
    }


_COLUMNS = ("timestamp", "node", "gpu", "uuid", "state", *_VALUES, "clock_sm_hertz", "throttle_reasons",
            "nvlink_bytes_per_second", "pcie_bytes_per_second", "job", "user", "why")  # fmt: skip


def as_csv(scene: ScreenData) -> str:
    """Return a line of names, and a row for each GPU and each node that does not answer; times in UTC, base units."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for node in scene.nodes:
        if node.problem:
            writer.writerow({"node": node.name, "state": "no answer", "why": node.problem})
        for gpu in node.gpus:
            writer.writerow(_row(node, gpu))
    return out.getvalue()


def _row(node: NodeView, gpu: GpuView) -> dict[str, Any]:
    job = gpu.job or {}
    return {
        **{name: "" if value is None else value for name, value in _gpu(gpu).items() if name in _COLUMNS},
        "timestamp": "" if node.wall is None else utc(node.wall),
        "node": node.name,
        "throttle_reasons": " ".join(gpu.row.throttles),
        "job": name_of(job) if job else "",
        "user": job.get("user", ""),
        "why": gpu.reasons,
    }
