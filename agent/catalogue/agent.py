"""The rows about the agent itself: its backends, its worker, its configuration, its alerts."""

from agent.catalogue.bindings import Derived, Source, counter, gauge, info, state
from agent.model import Backend, Lane, Metric, Node


def _count(name: str, help: str, *labels: str, how: str = "count", entity: type = Node) -> Metric:
    return counter(name, entity, help, Lane.FAST, Derived(how), labels=labels)


def _state(name: str, help: str, how: str, *labels: str, entity: type = Node) -> Metric:
    return state(name, entity, help, Lane.FAST, Derived(how), labels=labels)


def _gauge(name: str, help: str, how: str, *labels: str, entity: type = Node) -> Metric:
    return gauge(name, entity, help, Lane.FAST, Derived(how), labels=labels)


BACKENDS = (
    _state("coldplate_backend_up",
           "1 if the backend's last read succeeded, 0 if it failed or hangs; absent hardware has no series.",
           "outcome of the last read", entity=Backend),
    info("coldplate_backend_info", Backend, "The outcome of the backend's last read, ok, absent or failed.",
         Lane.FAST, Derived("outcome of the last read"), labels=("outcome",)),
    _gauge("coldplate_backend_duration_seconds", "Duration of the backend's last read.",
           "monotonic clock", entity=Backend),
    _gauge("coldplate_backend_age_seconds", "Time since the backend's last successful read.",
           "monotonic clock", entity=Backend),
    _count("coldplate_backend_reads_total", "Reads of the backend by outcome.", "outcome", entity=Backend),
    _count("coldplate_backend_read_seconds_total",
           "Time that reads of the backend took, by lane: for GPUs nearly all of it is spent in the driver.",
           "sampling_lane", how="monotonic clock", entity=Backend),
    gauge("coldplate_backend_series_dropped", Backend,
          "Series that the backend leaves out because they exceed its limit; absent while it leaves out no series.",
          Lane.SLOW, Derived("count")),
    _count("coldplate_backend_calls_total", "Driver calls or file reads that the backend made.", entity=Backend),
)  # fmt: skip

SAMPLER = (
    _gauge("coldplate_sample_age_seconds", "Age of the snapshot on this page when the page was rendered.",
           "monotonic clock"),
    _count("coldplate_ticks_total", "Ticks of the fast lane that were served."),
    _count("coldplate_ticks_missed_total",
           "Ticks of the fast lane that were skipped: the previous one took too long, or the agent was stopped."),
    gauge("coldplate_sampling_interval_seconds", Node,
          "Period of a lane at present; the overhead governor may have made it longer than configured.",
          Lane.FAST, Source("configuration: sampling"), labels=("sampling_lane",)),
    _count("coldplate_readings_rejected_total",
           "Readings rejected as implausible: outside the physical range, or a counter that decreased.", "cause",
           how="plausibility checks", entity=Backend),
    state("coldplate_metric_missing", Node,
          "1 for each metric that is absent, with the reason; the device's labels say where.",
          Lane.FAST, Derived("gaps reported by the backends"), labels=("metric", "reason"), span=(1, 1)),
    _state("coldplate_worker_up", "1 if the device worker process runs and answers.", "supervision"),
    _count("coldplate_worker_restarts_total", "Restarts of the device worker process."),
    _gauge("coldplate_driver_pause_end_timestamp_seconds",
           "While the driver is released: when it is reopened at the latest, in seconds since the epoch.",
           "coldplate pause and the kernel log"),
    counter("coldplate_process_cpu_seconds_total", Node, "Processor time used by the agent's processes.",
            Lane.SLOW, Source("/proc/PID/stat"), labels=("process",)),
    gauge("coldplate_process_resident_memory_bytes", Node, "Resident memory of the agent's processes.",
          Lane.SLOW, Source("/proc/PID/stat"), labels=("process",), span=(0, 2.0**44)),
    info("coldplate_build_info", Node, "The agent's version and the Python that runs it.",
         Lane.COLD, Source("the package"), labels=("version", "python")),
    info("coldplate_synthetic_info", Node, "Present if the devices are synthetic: none of their readings is real.",
         Lane.COLD, Source("configuration: backends.devices"), labels=("scenario",)),
    info("coldplate_replay_info", Node,
         "Present if a recording or a trace is played: its readings are not of this moment; the node, or the "
         "trace's file, and when it was recorded.", Lane.COLD, Source("configuration: backends.devices"),
         labels=("node", "recorded")),
    _state("coldplate_config_last_reload_successful",
           "1 if the last configuration reload succeeded, 0 if it failed and the previous configuration is in use.",
           "configuration"),
    _gauge("coldplate_config_last_reload_success_timestamp_seconds",
           "Time at which the current configuration was loaded, in seconds since the epoch.", "configuration"),
    _state("coldplate_web_config_last_reload_successful",
           "1 if the web configuration, certificate and key were last read successfully, 0 if former ones are in use.",
           "web configuration"),
    _gauge("coldplate_web_config_last_reload_success_timestamp_seconds",
           "Time at which the current web configuration was read, in seconds since the epoch.", "web configuration"),
    _gauge("coldplate_web_certificate_expiry_timestamp_seconds",
           "Time at which the first certificate of the chain that the port shows expires, in seconds since the epoch.",
           "web configuration: tls_server_config.cert_file"),
    _count("coldplate_web_requests_rejected_total",
           "Clients and requests that the web configuration kept out: certificate, handshake, login or rate.",
           "reason"),
)  # fmt: skip

VITALS = (
    _state("coldplate_thread_up",
           "1 if the agent's threads of this name make progress, 0 if one failed, is stuck or cannot be started.",
           "supervision", "thread"),
    _count("coldplate_thread_restarts_total", "Restarts of the agent's threads after an exception.", "thread"),
    _state("coldplate_state_write_successful",
           "1 if the last write of the state file succeeded, 0 if it failed or hangs and a restart would lose it.",
           "writing of the state directory", "file"),
    _count("coldplate_state_write_failures_total", "Failed attempts to write a state file; each is retried.", "file"),
    _gauge("coldplate_state_last_write_success_timestamp_seconds",
           "When the state file was last written, in seconds since the epoch; absent if not since the agent started.",
           "writing of the state directory", "file"),
)  # fmt: skip

OVERHEAD = (
    counter("coldplate_thread_cpu_seconds_total", Node,
            "Processor time used by the main process's threads of this name; `other` is what none of them accounts "
            "for.", Lane.SLOW, Source("CPU clocks of the threads"), labels=("thread",)),
    gauge("coldplate_overhead_cpu_ratio", Node,
          "Share of one core that the agent's processes used during the last minute.",
          Lane.FAST, Source("CPU clocks of the processes")),
    gauge("coldplate_overhead_cpu_budget_ratio", Node,
          "Share of one core that the agent may use before lanes are slowed down; absent without a budget.",
          Lane.FAST, Source("configuration: overhead.cpu_cores")),
    info("coldplate_overhead_info", Node,
         "Whether lanes are read as configured (normal), less often (slowed), or as rarely as may be (exhausted).",
         Lane.FAST, Derived("overhead governor"), labels=("state",)),
    _gauge("coldplate_sampling_slowdown_ratio",
           "How many times as long as configured the period of a lane is; absent without a budget.",
           "overhead governor", "sampling_lane"),
)  # fmt: skip

EXPECTATIONS = (
    state("coldplate_expectation_met", Node,
          "1 if the node is as expected in this respect, 0 if it is not; absent where that is unknown.",
          Lane.SLOW, Derived("the readings and configuration: expectations"), labels=("expectation",)),
    info("coldplate_expectations_info", Node, "The expectations that apply to the node, by their name or file.",
         Lane.SLOW, Derived("the GPUs and configuration: expectations"), labels=("expectations",)),
)  # fmt: skip

RULES = (
    state("coldplate_alert", Node, "1 for each alert that is pending or firing, with the alert's own labels.",
          Lane.FAST, Derived("rule engine"), labels=("alertname", "alertstate", "severity"), span=(1, 1)),
    info("coldplate_alert_text_info", Node,
         "Each firing alert with its own labels, its summary of when it began to fire, and the alert that inhibits it, "
         "if one does.",
         Lane.FAST, Derived("rule engine"), labels=("alertname", "inhibited_by", "severity", "summary")),
    _count("coldplate_rule_evaluations_total", "Rules evaluated on the node, by group.", "rule_group",
           how="rule engine"),
    _count("coldplate_rule_evaluation_failures_total",
           "Rule evaluations on the node that failed, by group; /api/v1/rules has the errors.", "rule_group",
           how="rule engine"),
    _count("coldplate_rule_evaluation_seconds_total", "Time spent evaluating rules on the node, by group.",
           "rule_group", how="rule engine"),
    _count("coldplate_rule_group_iterations_missed_total",
           "Evaluations of a rule group on the node that were skipped because rules took too long, by group.",
           "rule_group", how="rule engine"),
    _gauge("coldplate_rule_window_series", "Series kept in memory because a rule reads them.", "rule engine"),
    _gauge("coldplate_rule_window_bytes", "Memory reserved for the samples that rules read.", "rule engine"),
    _count("coldplate_rule_window_dropped_total",
           "Samples that a rule reads and that were dropped because they exceed the memory limit.", how="rule engine"),
)  # fmt: skip

NOTIFICATIONS = (
    _count("coldplate_notifications_sent_total", "Alerts delivered to a receiver.", "notifier", "url", how="notifiers"),
    _count("coldplate_notifications_dropped_total",
           "Alerts that a receiver never got: rejected by it, outdated before they could be sent, or too many.",
           "notifier", "url", how="notifiers"),
    _count("coldplate_notifications_errors_total", "Failed attempts to send to a receiver; their alerts are retried.",
           "notifier", "url", how="notifiers"),
    _gauge("coldplate_notifications_queue_length", "Alerts queued for delivery to a receiver.", "notifiers",
           "notifier", "url"),
)  # fmt: skip

FLIGHT = (
    _gauge("coldplate_flight_recorder_span_seconds", "How far back the flight recorder goes.", "flight recorder"),
    _gauge("coldplate_flight_recorder_memory_bytes", "Memory used by what the flight recorder holds.",
           "flight recorder"),
    _gauge("coldplate_flight_recorder_files_bytes",
           "Size of the files that the flight recorder has in its directory.", "flight recorder"),
    _count("coldplate_flight_recorder_files_total",
           "Files that the flight recorder wrote around alerts and XID errors."),
    _count("coldplate_flight_recorder_failures_total", "Files that the flight recorder could not write."),
    _gauge("coldplate_flight_recorder_last_success_timestamp_seconds",
           "When the flight recorder last wrote a file, in seconds since the epoch; absent before the first.",
           "flight recorder"),
)  # fmt: skip

RECORDED = (
    gauge("coldplate_recorded_processes", Node,
          "In a recording: processes of the recorded command and all that they started.",
          Lane.SLOW, Source("/proc/PID/stat"), span=(0, 2.0**22)),
    counter("coldplate_recorded_process_cpu_seconds_total", Node,
            "In a recording: processor time of the recorded command's processes, those that have ended included.",
            Lane.SLOW, Source("/proc/PID/stat")),
    gauge("coldplate_recorded_process_resident_memory_bytes", Node,
          "In a recording: resident memory of the recorded command's processes; what they share counts for each.",
          Lane.SLOW, Source("/proc/PID/stat"), span=(0, 2.0**52)),
)  # fmt: skip
