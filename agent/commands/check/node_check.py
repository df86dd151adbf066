"""Collect the evidence of `coldplate check` within the given time, and evaluate it.

The agent, the kernel log and the driver are read in separate threads: one that hangs does not delay the result.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from agent.backends.kmsg import KmsgReader, read_xids
from agent.config.schema import Config, ConfigError
from agent.config.words import DEVICES, NOT_OF_NODE
from agent.daemon.pausing import LONGEST_SECONDS, REQUEST, PauseError, boot_of, read_request
from agent.health import fault_findings, gpu_findings
from agent.health.conditions import order_of
from agent.health.examination import CONDITIONS, examined, expected_of, learned, view_of
from agent.health.expectations import GENERIC, Expected, NodeExpectations
from agent.health.seen_node import SeenNode
from agent.health.verdicts import HealthFinding, Verdict
from agent.lib import record
from agent.lib.clock import clock
from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.proc_stat import parse_run_delay, parse_stat
from agent.lib.wording import UserError, utc
from agent.model import Alert, Outcome, Phase, Severity, Snapshot, Xid
from agent.wiring.agent_client import AgentClient, read_alerts
from agent.wiring.command_line import CommandLineOptions, scenario_of
from agent.wiring.identity import OwnAgent, own_agent, state_file
from agent.wiring.sources import family_of, make_sampling_loop, read_scenario

KERNEL_LOG = "/dev/kmsg"
ALERTS = "/api/v1/alerts"
BOUNDS = AnswerBounds(body=16 * 2**20)
AGENT_SECONDS = 0.8
"""Seconds for the agent to answer: it does in a few milliseconds, unless it hangs."""

_Result = TypeVar("_Result")


def in_background(ask: Callable[[], _Result]) -> Callable[[float, _Result], _Result]:
    """Ask in a thread. Returns what gives the answer, or the second argument if it is missing at a monotonic second."""
    answers: list[_Result] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), name="aside", daemon=True)
    thread.start()

    def result(until: float, late: _Result) -> _Result:
        thread.join(max(until - clock().mono, 0.0))
        return answers[0] if answers else late

    return result


class AgentAlerts(Struct, frozen=True):
    """The alerts of the node that fire; None with the reason if no agent answered."""

    firing: Sequence[Alert] | None
    why: str = ""


def query_agent(agent: OwnAgent, until: float) -> AgentAlerts:
    """Return what the agent is alarmed about, by a monotonic second. The first address that answers is believed."""
    answer = AgentAlerts(None, "no address is configured to listen on")
    for url in agent.urls:
        answer = _ask(url, until, agent.login)
        if answer.firing is not None:
            break
    return answer


def _ask(url: str, until: float, login: Mapping[str, Any]) -> AgentAlerts:
    try:
        with contextlib.closing(HttpClient(HttpTarget(url, **login), BOUNDS, lambda: clock().mono)) as client:
            answer = client.exchange(HttpRequest("GET", ALERTS), min(until, clock().mono + AGENT_SECONDS))
        if answer.status != 200:
            return AgentAlerts(None, f"{url}{ALERTS}: HTTP status {answer.status}")
        return firing_of_node(read_alerts(answer.body))
    except (HttpError, ValueError) as error:
        return AgentAlerts(None, f"{url}: {error}")


def firing_of_node(alerts: Iterable[Alert]) -> AgentAlerts:
    """Return the alerts that fire and are of the node: those of the rack as a whole say nothing about it."""
    return AgentAlerts([alert for alert in alerts if alert.phase is Phase.FIRING and _is_of_node(alert)])


def _is_of_node(alert: Alert) -> bool:
    names = {name for name, _ in alert.labels}
    return "rack" not in names or "instance" in names


def read_kernel_log() -> tuple[Sequence[Xid] | None, str]:
    """Return the XIDs since boot, or None and why the kernel log cannot be read."""
    try:
        with contextlib.closing(KmsgReader(KERNEL_LOG)) as reader:
            return read_xids(reader, clock()), ""
    except OSError as error:
        return None, f"{KERNEL_LOG}: {error.strerror}"


GATHERING_SHARE = 0.8
"""Share of the time in which answers are waited for; the rest is for the judgement itself, and for leaving."""
STARTING_SECONDS = 0.3
"""Seconds since this process began, where they are unknown."""
LONGEST_START_SECONDS = 5.0
ANSWERING_SECONDS = 0.5
"""Seconds after which a GPU that has not answered counts as hanging; a healthy one takes a few milliseconds."""
ANSWERING_SHARE = 0.5
"""The same as a share of the time that it took to open the devices: on a machine that is very busy all takes longer."""
_BUSY = "the machine is very busy: give it a longer --timeout"
VERDICTS = {Severity.CRITICAL: Verdict.CRITICAL, Severity.WARNING: Verdict.WARNING}
"""Of alerts; information does not count."""
NO_ALERT = "no alert of the agent is firing"


class CheckResult(Struct, frozen=True):
    """The findings, and the expectations that they come from. `note` says what limits them."""

    findings: Sequence[HealthFinding]
    expected: Expected
    note: str = ""


def deadline(timeout: float) -> float:
    """Return the monotonic second until which answers are waited for, of `timeout` seconds since the process began."""
    now = clock().mono
    age = STARTING_SECONDS
    with contextlib.suppress(OSError, ValueError):
        age = now - parse_stat(Path("/proc/self/stat").read_bytes()).started / os.sysconf("SC_CLK_TCK")
    return now + GATHERING_SHARE * timeout - (age if 0.0 <= age <= LONGEST_START_SECONDS else STARTING_SECONDS)


def age_scenario(options: CommandLineOptions, config: Config, at: float | None) -> CommandLineOptions:
    """Return the options, with the scenario `at` seconds old, or as old as it takes its faults to show.

    Raises ConfigError.
    """
    if scenario_of(config) is None:
        if at is not None:
            raise ConfigError("--at: needs --scenario")
        return options
    from agent.backends.synthetic.synthetic_source import settled_at

    return record.replace(options, scenario_age=settled_at(read_scenario(config)) if at is None else at)


class CheckEvidence(Struct, frozen=True):
    """The evidence: a snapshot of the devices of a source, the XIDs since boot, and the alerts of the agent.

    `is_up`: the device worker was up, so that its silence is the driver's. `is_whole`: every source answered in time.
    `opening` is how many seconds it took to open the devices, and `waited` for how many they had been open; `starved`
    is for how many seconds this process and the device worker waited for a processor. Without `xids`, `why_no_xids`
    says why the kernel log cannot be read; without `alerts`, the agent was not queried. `paused` is the reason why the
    driver was not read. `note` says of an agent that it does not read the devices of its node.
    """

    snapshot: Snapshot
    devices: str
    is_up: bool = True
    is_whole: bool = True
    waited: float = inf
    opening: float = 0.0
    starved: float = 0.0
    xids: Sequence[Xid] | None = None
    why_no_xids: str = ""
    alerts: AgentAlerts | None = None
    paused: str = ""
    note: str = ""


def collect_evidence(
    config: Config, options: CommandLineOptions, until: float, agent: str, given: Mapping[str, Any] | None = None
) -> CheckEvidence:
    """Collect all evidence at the same time, by a monotonic second. Raises ConfigError.

    The agent is not queried if `agent` is "none". `given` is how to log in to it, if not as a peer of the rack does.
    """
    alerts = None if agent == "none" else in_background(partial(query_agent, own_agent(config, given), until))
    is_real = config.backends.devices not in (*NOT_OF_NODE, "none")
    kernel_log = in_background(read_kernel_log) if is_real else None
    paused = _pause(config, options)
    sampled = replace(config, backends=replace(config.backends, devices="none")) if paused else config
    evidence = replace(_sample(sampled, options, until), paused=paused)
    xids: Sequence[Xid] | None = [] if scenario_of(config) is None else _past(config, options)
    why = ""
    if kernel_log is not None:
        xids, why = kernel_log(until, (None, "the kernel log could not be read in time"))
    answer = None if alerts is None else alerts(until, AgentAlerts(None, "it did not answer in time"))
    devices = family_of(config)
    return replace(evidence, devices=devices, xids=xids, why_no_xids=why, alerts=answer)


PAUSED = "coldplate_driver_pause_end_timestamp_seconds"
FOREIGN = {
    "coldplate_replay_info": "the agent replays a recording: this is not the state of that node",
    "coldplate_synthetic_info": "the agent has synthetic devices: this is not the state of that node",
}
MAX_AGE_SECONDS = 60.0
"""Age of a sample above which it shows how the node was: an agent reads its slowest facts about once a minute."""


def query_node(target: HttpTarget, until: float) -> CheckEvidence:
    """Return what the agent at `target` reports, by a monotonic second. Raises UserError if that is not current."""
    timeout = max(until - clock().mono, 0.1)
    client = AgentClient(target.shown, replace(target, timeout=timeout), clock, with_past=False)
    found = client.fetch()
    client.close()
    if found.snapshot is None:
        remedy = "" if ";" in found.problem else "; see systemctl status coldplate on that node"
        raise UserError(f"{target.shown}: {found.problem}{remedy}")
    if found.age > MAX_AGE_SECONDS:
        problem = f"the agent's last sample is {found.age:.0f} s old"
        raise UserError(f"{target.shown}: {problem}; see its /-/ready, or restart coldplate on that node")
    alerts = None if found.alerts is None else firing_of_node(found.alerts)  # None: it evaluates no rules
    metrics = {series.metric.name for series, _ in found.snapshot}
    return CheckEvidence(
        found.snapshot,
        next((each.backend for each in found.snapshot.reports if each.backend in DEVICES), ""),
        alerts=alerts,
        paused="the agent has released the driver (coldplate pause)" if PAUSED in metrics else "",
        note=next((note for metric, note in FOREIGN.items() if metric in metrics), ""),
    )


def evaluate(
    evidence: CheckEvidence, names: Collection[str], given: Expected | None, *, needs_agent: bool
) -> CheckResult:
    """Return the findings of the checks with these names; without `given`, the GPUs decide what is expected."""
    view = view_of(evidence.snapshot, evidence.devices)
    expected = given or expected_of(view)
    firing = evidence.alerts.firing if evidence.alerts is not None and "alerts" in names else None
    made_here = names if firing is None else [name for name in names if name not in CONDITIONS]
    findings = [
        replace(_driver(view, expected, evidence), name="driver"),
        *(_patient(each, view, evidence) for each in examined(view, expected, made_here)),
        replace(fault_findings.xids(view, evidence.xids, evidence.why_no_xids), name="xids"),
    ]
    findings = [finding for finding in findings if finding.name in names]
    if evidence.alerts is not None and "agent" in names and needs_agent:
        findings.append(_agent_finding(evidence.alerts))
    if firing is not None:
        findings += condition_findings(firing)
    unrecognised = "" if given is not None or expected is not GENERIC else _unrecognised(view)
    note = "; ".join(filter(None, (evidence.note, unrecognised)))
    return CheckResult(findings, expected, note)


def learn_expectations(evidence: CheckEvidence) -> NodeExpectations:
    """Return expectations that describe this node. Raises ConfigError if a fact to learn is missing."""
    view = view_of(evidence.snapshot, evidence.devices)
    silent = len(view.gpus) - len(view.answering)
    what = f"{silent} of {len(view.gpus)} GPUs do not answer" if silent else "not everything was read in time"
    if not view.answering:
        what = "no GPU answers"
    if silent or not view.answering or not evidence.is_whole:
        raise ConfigError(f"--learn: {what}; learn from a node that is well, or give it a longer --timeout")
    return learned(view, f"{len(view.gpus)} x {next(iter(view.facts('model').values()))}, learned")


def _agent_finding(answer: AgentAlerts) -> HealthFinding:
    """Return whether the agent answers, where it has to."""
    if answer.firing is not None:
        return HealthFinding(Verdict.OK, "the agent answers", "it does", name="agent")
    remedy = "systemctl status coldplate; or leave it out with --agent none"
    return HealthFinding(Verdict.CRITICAL, "the agent answers", answer.why, remedy, "agent")


def condition_findings(firing: Iterable[Alert]) -> list[HealthFinding]:
    """Return one finding for each rule that fires with a severity that counts, the worst first, by the rule's name."""
    by_rule: dict[tuple[str, Verdict], list[Alert]] = {}
    for alert in sorted(firing, key=order_of):
        if alert.severity in VERDICTS:
            by_rule.setdefault((alert.rule, VERDICTS[alert.severity]), []).append(alert)
    findings = [
        HealthFinding(verdict, NO_ALERT, _summary_of(alerts), f"do what the runbook of {rule} says", rule)
        for (rule, verdict), alerts in by_rule.items()
    ]
    return findings or [HealthFinding(Verdict.OK, NO_ALERT, "none", name="alerts")]


def _summary_of(alerts: Sequence[Alert]) -> str:
    """Return the summary of the first of these alerts of one rule, its cause, and how many more there are."""
    first = alerts[0]
    cause = f" (effect of {first.inhibited_by})" if first.inhibited_by else ""
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    return f"{first.annotations.get('summary', 'firing')}{cause}{more}"


def _sample(config: Config, options: CommandLineOptions, until: float) -> CheckEvidence:
    """Return what the devices show by a monotonic second. Raises ConfigError."""
    from agent.daemon.hub import Hub
    from agent.daemon.sampling import FrameProvider
    from agent.rack.series import ConfiguredRack
    from agent.wiring.peering import load_rack
    from agent.wiring.start_checks import check

    check(config)
    began = clock().mono
    configured: FrameProvider = ConfiguredRack(load_rack(config, options.folder))
    # Beside synthetic devices, this machine is not the node that is judged.
    host = config.backends.host and scenario_of(config) is None
    backends = replace(config.backends, host=host, power=(), redfish=None)
    sparing = replace(config, backends=backends, jobs=replace(config.jobs, sources=()))
    sampling = make_sampling_loop(sparing, options, Hub(), {"reporting the rack's configuration": configured})
    try:
        snapshot = sampling.glance(until)
        worker, is_whole = sampling.supervisor, sampling.has_everything()
        if worker.held:  # no devices are read
            return CheckEvidence(snapshot, family_of(config), is_whole=is_whole)
        opened = snapshot.at.mono if worker.opened_at is None else worker.opened_at
        waited, opening = snapshot.at.mono - opened, opened - began
        starved = sum(map(starved_seconds, filter(None, (os.getpid(), worker.pid))))
        return CheckEvidence(snapshot, family_of(config), worker.heard, is_whole, waited, opening, starved)
    finally:
        sampling.supervisor.abandon()


def _driver(view: SeenNode, expected: Expected, evidence: CheckEvidence) -> HealthFinding:
    finding = gpu_findings.driver(view, expected, evidence.devices)
    if evidence.paused:
        remedy = "check again afterwards, or end it with coldplate pause --end"
        return replace(finding, verdict=Verdict.UNKNOWN, found=evidence.paused, remedy=remedy)
    if finding.verdict is Verdict.CRITICAL and not evidence.is_up and not view.has_devices_report:
        return replace(finding, verdict=Verdict.UNKNOWN, found="the device worker was not up in time", remedy=_BUSY)
    report = view.reports.get(evidence.devices)
    is_unanswered = report is None or (report.outcome is Outcome.OK and bool(view.gpus))
    if finding.verdict is Verdict.CRITICAL and is_unanswered and not view.silent and not _had_time(evidence):
        return replace(finding, verdict=Verdict.UNKNOWN, remedy=_BUSY)
    return finding


def _patient(finding: HealthFinding, view: SeenNode, evidence: CheckEvidence) -> HealthFinding:
    """Return the finding, as unknown if GPUs are only silent and hardly had the time to answer."""
    if finding.name != "gpus-present" or finding.is_met is not False or _had_time(evidence):
        return finding
    silent = [gpu for gpu in view.gpus if gpu not in view.answering]
    if any(gpu in view.silent for gpu in silent):
        return finding
    return replace(finding, verdict=Verdict.UNKNOWN, remedy=_BUSY)


def _had_time(evidence: CheckEvidence) -> bool:
    """Return whether a healthy GPU would have answered: on a machine that is very busy all takes longer."""
    timeout = max(ANSWERING_SECONDS, ANSWERING_SHARE * evidence.opening)
    return evidence.waited - evidence.starved >= timeout


def starved_seconds(pid: int) -> float:
    """Return for how long a thread of the process has waited for a processor, of the one that waited longest.

    0 where the kernel does not count it.
    """
    longest = 0.0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            longest = max(longest, parse_run_delay(file.read_bytes()))
    return longest


def _pause(config: Config, options: CommandLineOptions) -> str:
    """Return why the driver must stay closed now, such as a pause; empty if it may be opened."""
    state = state_file(config, REQUEST) if scenario_of(config) is None else None
    now = clock().wall
    with contextlib.suppress(OSError, PauseError):
        request = read_request(state.parent) if state is not None else None
        is_now = request is not None and now < request.until <= now + LONGEST_SECONDS
        if request is not None and is_now and request.boot == boot_of(options.procfs):
            return f"coldplate pause has released the driver until {utc(request.until)}"
    return ""


def _unrecognised(view: SeenNode) -> str:
    models = list(view.facts("model").values())
    if not models or not view.gpus:  # in a pause, the models are those of before
        return "generic checks only: no GPU reported its model"
    kinds = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return f"generic checks only: no shipped expectations for {kinds}; coldplate check --learn makes some"


def _past(config: Config, options: CommandLineOptions) -> list[Xid]:
    from agent.backends.synthetic.synthetic_source import past_xids

    return past_xids(read_scenario(config), options.scenario_age, clock())
