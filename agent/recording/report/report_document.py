"""Write the report as JSON in the units of the catalogue, with the alerts of the run."""

from collections.abc import Sequence
from typing import Any

from agent.lib.wording import utc
from agent.model import IbPort
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import (
    AlertOfRun,
    Judgement,
    Observation,
    PendingAlert,
    UnjudgedRule,
    severities_by_alert,
)
from agent.recording.report.run_facts import (
    EntityFacts,
    GpuFacts,
    JobIdentity,
    NodeFacts,
    RecordedRun,
    imbalance_of,
    step_of,
    unknown_utilization,
)
from agent.recording.report.series_statistics import GaugeSummary

VERSION = 3
"""Grows when a member changes its meaning or goes away."""

_GAUGES = {
    "utilization_ratio": chosen.UTILIZATION,
    "sm_active_ratio": chosen.SM,
    "tensor_active_ratio": chosen.TENSOR,
    "dram_active_ratio": chosen.DRAM,
    "sm_occupancy_ratio": chosen.OCCUPANCY,
    "memory_used_bytes": chosen.MEMORY,
    "power_watts": chosen.POWER,
    "temperature_celsius": chosen.TEMPERATURE,
    "memory_temperature_celsius": chosen.MEMORY_TEMPERATURE,
}
_TRAFFIC = {
    "nvlink_transmit": chosen.NVLINK_OUT,
    "nvlink_receive": chosen.NVLINK_IN,
    "pcie_transmit": chosen.PCIE_OUT,
    "pcie_receive": chosen.PCIE_IN,
}
_COUNTED = {
    "xids": chosen.XIDS,
    "ecc_errors": chosen.ECC,
    "nvlink_errors": chosen.NVLINK_ERRORS,
    "pcie_replays": chosen.PCIE_REPLAYS,
}


def report_document(run: RecordedRun, judgement: Judgement, recorded: Sequence[Observation]) -> dict[str, Any]:
    """Return the document. What was not seen is null and never 0; `seconds` say over how long a figure is.

    `recorded` are alerts that the node's own agent had, and that the judgement lacks.
    """
    return {
        "version": VERSION,
        "files": run.files,
        "problems": run.problems,
        "from": utc(run.first),
        "to": utc(run.last),
        "seconds": run.span,
        "interval_seconds": run.interval,
        **judgement_document(judgement),
        "recorded_alerts": [_alert(observation) for observation in recorded],
        "groups": [_group(job, gpus) for job, gpus in run.groups()],
        "nodes": [_node(node, [gpu for gpu in run.gpus() if gpu.node is node], run.ports()) for node in run.nodes],
    }


def judgement_document(judgement: Judgement) -> dict[str, Any]:
    """Return the alerts that fired, those that were pending at the end, and what could not be judged."""
    return {
        "alerts": [_alert(observation) for observation in judgement.observations],
        "pending_alerts": [_pending(alert) for alert in judgement.pending],
        "rules": {**coverage_document(judgement), "failures": list(judgement.failures)},
    }


def coverage_document(judgement: Judgement) -> dict[str, Any]:
    """Return how many rules were evaluated, and the alerts of those that could not judge."""
    return {
        "evaluated": len(judgement.rules),
        "need_longer_history": _unjudged(judgement.short),
        "without_metrics": _unjudged(judgement.unread),
    }


def _unjudged(rules: Sequence[UnjudgedRule]) -> list[dict[str, Any]]:
    return [{"alert": alert, "severities": names} for alert, names in severities_by_alert(rules).items()]


def _alert(alert: Observation) -> dict[str, Any]:
    return {
        **_subject(alert),
        "to": None if alert.fires_at_end else utc(alert.last),
        "seconds": alert.seconds,
        "times": alert.times,
        "inhibited_by": alert.inhibited_by or None,
    }


def _pending(alert: PendingAlert) -> dict[str, Any]:
    return {**_subject(alert), "seconds": alert.seconds, "for_seconds": alert.hold, "missing_seconds": alert.missing}


def _subject(alert: AlertOfRun) -> dict[str, Any]:
    return {
        "alert": alert.alert,
        "severity": alert.severity.value,
        "node": alert.node,
        "device": alert.device or None,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "from": utc(alert.first),
    }


def _group(job: JobIdentity | None, gpus: Sequence[GpuFacts]) -> dict[str, Any]:
    uneven, step = imbalance_of(gpus), step_of(gpus)
    return {
        "job": job._asdict() if job is not None else None,
        "gpus": [gpu.title for gpu in gpus],
        "unknown_utilization_ratio": {gpu.title: share for gpu, share in unknown_utilization(gpus)},
        "imbalance": None
        if uneven is None
        else {
            "window_seconds": uneven.window,
            "seconds": uneven.seconds,
            "mean_difference_ratio": uneven.mean,
            "largest_difference_ratio": uneven.largest,
        },
        "step": None
        if step is None
        else {"seconds": step[0].seconds, "autocorrelation": step[0].clarity, "seen_in": step[1]},
    }


def _node(node: NodeFacts, gpus: Sequence[GpuFacts], ports: Sequence[tuple[IbPort, EntityFacts]]) -> dict[str, Any]:
    header = node.headers[0]
    by_mode = node.facts_of().growth_by(chosen.CPU, "mode")
    by_resource = node.facts_of().growth_by(chosen.PRESSURE, "resource")
    return {
        "node": node.name,
        "snapshots": node.snapshots,
        "seconds": node.seconds,
        "provenance": {
            "coldplate": header.coldplate,
            "maker": header.maker,
            "command": list(header.command),
            "job": header.job,
            "scenario": header.scenario,
            "redacted": header.redacted,
        },
        "power_watts": {source: _summary(power) for source, power in node.power().items()},
        "cpu_seconds": {mode: counter.growth for mode, counter in by_mode.items()},
        "waiting_ratio": {resource: counter.mean for resource, counter in by_resource.items()},
        "gpus": [_gpu(gpu) for gpu in gpus],
        "ports": [
            {
                "device": port.device,
                "port": port.port,
                "transmit": _rate(facts, chosen.PORT_OUT),
                "receive": _rate(facts, chosen.PORT_IN),
                "down_seconds": next((state.off for _, state in facts.states(chosen.PORT_UP)), None),
                "errors": {
                    name.removeprefix("coldplate_infiniband_"): counter.growth
                    for name in chosen.PORT_ERRORS
                    if (counter := facts.growth(name)) is not None
                },
            }
            for port, facts in ports
            if facts.node is node
        ],
    }


def _gpu(gpu: GpuFacts) -> dict[str, Any]:
    energy, capped, job = gpu.energy(), gpu.capped_share(), gpu.job()
    return {
        "gpu": gpu.gpu.index,
        "uuid": gpu.gpu.uuid,
        "model": gpu.model,
        "job": job._asdict() if job is not None else None,
        **{title: _summary(gpu.summary(name)) for title, name in _GAUGES.items()},
        "sm_clock_hertz": _summary(gpu.summary(chosen.CLOCK)),
        "power_limit_watts": gpu.power_limit,
        "at_power_limit": None
        if capped is None
        else {"ratio": capped.amount, "seconds": capped.seconds, "source": capped.source},
        "energy": None
        if energy is None
        else {"joules": energy.amount, "seconds": energy.seconds, "source": energy.source},
        "state_seconds": gpu.state_seconds() or None,
        "throttled": {
            reason: {"throttled_seconds": measured.amount, "seconds": measured.seconds, "source": measured.source}
            for reason, measured in gpu.throttled_seconds().items()
        },
        "traffic": {title: _rate(gpu, name) for title, name in _TRAFFIC.items()},
        "counted": {
            title: {" ".join(labels.values()) or "all": counter.growth for labels, counter in gpu.growths(name)}
            for title, name in _COUNTED.items()
        },
        "silent_seconds": gpu.silent_seconds,
        "nvlinks_down_seconds": {str(link): state.off for link, state in gpu.links() if state.off},
        "absent": {
            name: reason.value
            for (name, entity), reason in gpu.node.absent.items()
            if entity == gpu.gpu and name in _GAUGES.values()
        },
    }


def _summary(summary: GaugeSummary | None) -> dict[str, float] | None:
    return None if summary is None else dict(summary._asdict())


def _rate(facts: EntityFacts, name: str) -> dict[str, float | None] | None:
    counter = facts.growth(name)
    if counter is None:
        return None
    return {
        "bytes": counter.growth,
        "mean_bytes_per_second": counter.mean,
        "peak_bytes_per_second": facts.peak(name),
        "seconds": counter.seconds,
    }
