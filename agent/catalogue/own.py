"""The rows about the agent itself: its backends, its worker, its configuration, its alerts."""

from __future__ import annotations

from agent.catalogue.bindings import Derived, Source
from agent.model import Backend, Kind, Lane, Metric, Node, Unit

BACKENDS = (
    Metric("coldplate_backend_up", Kind.STATE, Unit.NONE, Backend,
           "1 if the backend's last read succeeded, 0 if it failed; absent hardware has no series.",
           Lane.FAST, (Derived("outcome of the last read"),), span=(0, 1), simulated=(0, 1)),
    Metric("coldplate_backend_info", Kind.INFO, Unit.NONE, Backend,
           "The outcome of the backend's last read, ok, absent or failed.",
           Lane.FAST, (Derived("outcome of the last read"),), labels=("outcome",), span=(1, 1)),
    Metric("coldplate_backend_duration_seconds", Kind.GAUGE, Unit.SECONDS, Backend,
           "Time that the backend's last read took.",
           Lane.FAST, (Derived("monotonic clock"),), simulated=(0, 10)),
    Metric("coldplate_backend_age_seconds", Kind.GAUGE, Unit.SECONDS, Backend,
           "Time since the backend's last read that succeeded.",
           Lane.FAST, (Derived("monotonic clock"),), simulated=(0, 3600)),
    Metric("coldplate_backend_reads_total", Kind.COUNTER, Unit.NONE, Backend,
           "Reads of the backend by outcome.",
           Lane.FAST, (Derived("count"),), labels=("outcome",)),
    Metric("coldplate_driver_calls_total", Kind.COUNTER, Unit.NONE, Backend,
           "Driver calls or file reads that the backend made.",
           Lane.FAST, (Derived("count"),)),
)  # fmt: skip

SAMPLER = (
    Metric("coldplate_sample_age_seconds", Kind.GAUGE, Unit.SECONDS, Node,
           "Time from the snapshot that this page shows to the making of the page.",
           Lane.FAST, (Derived("monotonic clock"),), simulated=(0, 3600)),
    Metric("coldplate_ticks_total", Kind.COUNTER, Unit.NONE, Node,
           "Ticks of the fast lane that were served.",
           Lane.FAST, (Derived("count"),)),
    Metric("coldplate_ticks_missed_total", Kind.COUNTER, Unit.NONE, Node,
           "Ticks of the fast lane that were left out because the one before took too long.",
           Lane.FAST, (Derived("count"),)),
    Metric("coldplate_sampling_interval_seconds", Kind.GAUGE, Unit.SECONDS, Node,
           "Period of a lane.",
           Lane.FAST, (Source("configuration: sampling"),), labels=("lane",)),
    Metric("coldplate_readings_rejected_total", Kind.COUNTER, Unit.NONE, Backend,
           "Readings left out because no device can mean them: beyond the physical range, or a counter that fell.",
           Lane.FAST, (Derived("plausibility checks"),), labels=("cause",)),
    Metric("coldplate_metric_missing", Kind.STATE, Unit.NONE, Node,
           "1 for each metric that is absent, with the reason; the device's labels say where.",
           Lane.FAST, (Derived("gaps reported by the backends"),), labels=("metric", "reason"), span=(1, 1)),
    Metric("coldplate_worker_up", Kind.STATE, Unit.NONE, Node,
           "1 if the device worker process runs and answers.",
           Lane.FAST, (Derived("supervision"),), span=(0, 1), simulated=(0, 1)),
    Metric("coldplate_worker_restarts_total", Kind.COUNTER, Unit.NONE, Node,
           "Times that the device worker process was started again.",
           Lane.FAST, (Derived("count"),)),
    Metric("coldplate_process_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, Node,
           "Processor time used by the agent's processes.",
           Lane.SLOW, (Source("/proc/PID/stat"),), labels=("process",)),
    Metric("coldplate_process_resident_memory_bytes", Kind.GAUGE, Unit.BYTES, Node,
           "Resident memory of the agent's processes.",
           Lane.SLOW, (Source("/proc/PID/stat"),), labels=("process",), span=(0, 2.0**44)),
    Metric("coldplate_build_info", Kind.INFO, Unit.NONE, Node,
           "The agent's version and the Python that runs it.",
           Lane.COLD, (Source("the package"),), labels=("version", "python"), span=(1, 1)),
    Metric("coldplate_synthetic_info", Kind.INFO, Unit.NONE, Node,
           "Present while the devices are synthetic: nothing they show is real.",
           Lane.COLD, (Source("configuration: backends.devices"),), labels=("scenario",), span=(1, 1)),
    Metric("coldplate_config_last_reload_successful", Kind.STATE, Unit.NONE, Node,
           "1 if the configuration was last read without an error, 0 if the one before it is still in force.",
           Lane.FAST, (Derived("configuration"),), span=(0, 1), simulated=(0, 1)),
    Metric("coldplate_config_last_reload_success_timestamp_seconds", Kind.GAUGE, Unit.SECONDS, Node,
           "When the configuration in force was read, in seconds since the epoch.",
           Lane.FAST, (Derived("configuration"),)),
)  # fmt: skip

ALERTS = (
    Metric("coldplate_alert", Kind.STATE, Unit.NONE, Node,
           "1 for each alert that is pending or firing; needs the rules engine, not in this version.",
           Lane.FAST, (Derived("rules engine"),), labels=("alertname", "alertstate", "severity"), span=(1, 1)),
    Metric("coldplate_rule_evaluation_failures_total", Kind.COUNTER, Unit.NONE, Node,
           "Rule evaluations that failed; needs the rules engine, not in this version.",
           Lane.FAST, (Derived("rules engine"),), labels=("rule_group",)),
    Metric("coldplate_notifications_total", Kind.COUNTER, Unit.NONE, Node,
           "Notifications sent; needs the rules engine, not in this version.",
           Lane.FAST, (Derived("notifiers"),), labels=("notifier",)),
    Metric("coldplate_notifications_dropped_total", Kind.COUNTER, Unit.NONE, Node,
           "Notifications given up; needs the rules engine, not in this version.",
           Lane.FAST, (Derived("notifiers"),), labels=("notifier",)),
)  # fmt: skip

ROWS = BACKENDS + SAMPLER + ALERTS
