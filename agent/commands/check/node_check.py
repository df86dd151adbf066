"""Collect the evidence of `coldplate check` within the given time, and evaluate it.

The agent, the kernel log and the driver are read in separate threads: one that hangs does not delay the result.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from agent.backends.kmsg import KmsgReader, read_xids
from agent.commands.check.node_conditions import (
    AgentAnswer,
    NodeConditions,
    OneSampleRules,
    condition_findings,
    of_node,
    query_agent,
)
from agent.config.schema import Config, ConfigError
from agent.config.words import DEVICES, NOT_OF_NODE
from agent.daemon.pausing import LONGEST_SECONDS, REQUEST, PauseError, boot_of, read_request
from agent.health import gpu_findings, xid_findings
from agent.health.device_facts import devices_not_of_node
from agent.health.evaluated_rules import NO_RULES
from agent.health.examination import expectations_from_node, expected_of, run_checks, view_of
from agent.health.expectations import GENERIC, Expected, NodeExpectations
from agent.health.seen_node import SeenNode
from agent.health.verdicts import HealthFinding, Verdict
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.proc_stat import parse_run_delay, parse_stat
from agent.lib.wording import UserError, utc
from agent.model import Outcome, Snapshot, Xid
from agent.wiring.agent_client import AgentClient
from agent.wiring.command_line import CommandLineOptions, scenario_of
from agent.wiring.identity import own_agent, state_file
from agent.wiring.sources import family_of, make_sampling_loop, read_scenario

KERNEL_LOG = "/dev/kmsg"

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


class CheckEvidence(Struct, frozen=True):
    """The evidence: a snapshot of the devices of a source, the XIDs since boot, and the conditions of the node.

    `is_up`: the device worker was up, so that its silence is the driver's. `is_whole`: every source answered in time.
    `opening` is how many seconds it took to open the devices, and `waited` for how many they had been open; `starved`
    is for how many seconds this process and the device worker waited for a processor. Without `xids`, `why_no_xids`
    says why the kernel log cannot be read. Without `conditions`, none were asked for; `agent` is what the node's agent
    answered, None if all this is its answer. `paused` is the reason why the driver was not read. `note` says of an
    agent that it does not read the devices of its node.
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
    conditions: NodeConditions | None = None
    agent: AgentAnswer | None = None
    paused: str = ""
    note: str = ""


def collect_evidence(
    config: Config, options: CommandLineOptions, until: float, agent: str, login: Mapping[str, Any] | None = None
) -> CheckEvidence:
    """Collect all evidence at the same time, by a monotonic second. Raises ConfigError.

    The agent is not queried if `agent` is "none". `login` is how to log in to it, if not as a peer of the rack does.
    """
    judge = in_background(
        partial(_agent_and_rules, config, options.folder, None if agent == "none" else login or {}, until)
    )
    is_real = config.backends.devices not in (*NOT_OF_NODE, "none")
    kernel_log = in_background(read_kernel_log) if is_real else None
    paused = _pause(config, options)
    sampled = replace(config, backends=replace(config.backends, devices="none")) if paused else config
    evidence = replace(_sample(sampled, options, until), paused=paused)
    xids: Sequence[Xid] | None = [] if scenario_of(config) is None else _past_xids(config, options)
    no_xids_reason = ""
    if kernel_log is not None:
        xids, no_xids_reason = kernel_log(until, (None, "the kernel log could not be read in time"))
    evidence = replace(evidence, devices=family_of(config), xids=xids, why_no_xids=no_xids_reason)
    return _with_conditions(evidence, *judge(until, (AgentAnswer(reason="it did not answer in time"), None)))


def _agent_and_rules(
    config: Config, folder: Path, login: Mapping[str, Any] | None, until: float
) -> tuple[AgentAnswer, OneSampleRules | None]:
    """Return what the agent answers, and the rules to evaluate here where its conditions cannot be used.

    Without `login` the agent is not queried.
    """
    answer = AgentAnswer(reason="it is not asked")
    if login is not None:
        answer = query_agent(own_agent(config, login or None), config.backends.devices, until)
    return answer, OneSampleRules(config, folder) if answer.firing is None else None


def _with_conditions(evidence: CheckEvidence, answer: AgentAnswer, rules: OneSampleRules | None) -> CheckEvidence:
    """Return the evidence with the agent's conditions, else with those of the rules over its snapshot."""
    if answer.firing is not None:
        return replace(evidence, conditions=NodeConditions(answer.firing), agent=answer)
    has_failed = any(
        report.backend == evidence.devices and report.outcome is not Outcome.OK for report in evidence.snapshot.reports
    )
    if rules is None or not (evidence.is_whole or has_failed or _had_time(evidence)):
        return replace(evidence, conditions=NodeConditions(reason=_BUSY), agent=answer)
    conditions = rules.evaluate(evidence.snapshot)
    if answer.answered:
        conditions = replace(conditions, note=f"{answer.reason}; {conditions.note}")
    return replace(evidence, conditions=conditions, agent=answer)


PAUSED = "coldplate_driver_pause_end_timestamp_seconds"
MAX_AGE_SECONDS = 60.0
"""Age of a sample above which it shows how the node was: an agent reads its slowest facts about once a minute."""


def query_node(target: HttpTarget, until: float) -> CheckEvidence:
    """Return what the agent at `target` reports, by a monotonic second. Raises UserError if that is not current."""
    timeout = max(until - clock().mono, 0.1)
    client = AgentClient(target.shown, replace(target, timeout=timeout), clock, with_past=False)
    response = client.fetch()
    client.close()
    if response.snapshot is None:
        remedy = "" if ";" in response.problem else "; see systemctl status coldplate on that node"
        raise UserError(f"{target.shown}: {response.problem}{remedy}")
    if response.age > MAX_AGE_SECONDS:
        problem = f"the agent's last sample is {response.age:.0f} s old"
        raise UserError(f"{target.shown}: {problem}; see its /-/ready, or restart coldplate on that node")
    foreign = devices_not_of_node(response.snapshot)
    conditions = NodeConditions()
    if response.alerts is not None and response.unjudged != NO_RULES:
        conditions = NodeConditions(of_node(response.alerts), response.unjudged)
    metrics = {series.metric.name for series, _ in response.snapshot}
    return CheckEvidence(
        response.snapshot,
        next((report.backend for report in response.snapshot.reports if report.backend in DEVICES), ""),
        conditions=conditions,
        paused="the agent has released the driver (coldplate pause)" if PAUSED in metrics else "",
        note=f"the agent has {foreign} devices: this is not the state of that node" if foreign else "",
    )


def evaluate(
    evidence: CheckEvidence, names: Collection[str], chosen: Expected | None, *, needs_agent: bool
) -> CheckResult:
    """Return the findings of the checks with these names; without `chosen`, the GPUs decide what is expected."""
    view = view_of(evidence.snapshot, evidence.devices)
    expected = chosen or expected_of(view)
    findings = [
        replace(_driver(view, expected, evidence), name="driver"),
        *(_allow_time(finding, view, evidence) for finding in run_checks(view, expected, names)),
        replace(xid_findings.xids(view, evidence.xids, evidence.why_no_xids), name="xids"),
    ]
    findings = [finding for finding in findings if finding.name in names]
    if "agent" in names and needs_agent:
        findings.append(_agent_finding(evidence.agent))
    conditions = evidence.conditions if "alerts" in names else None
    if conditions is not None:
        findings += condition_findings(conditions, view.by_gpu.values())
    unrecognised = "" if chosen is not None or expected is not GENERIC else _unrecognised(view)
    limit = "" if conditions is None else conditions.note
    note = "; ".join(filter(None, (evidence.note, unrecognised, limit)))
    return CheckResult(findings, expected, note)


def learn_expectations(evidence: CheckEvidence) -> NodeExpectations:
    """Return expectations that describe this node. Raises ConfigError if a fact to learn is missing."""
    view = view_of(evidence.snapshot, evidence.devices)
    silent = len(view.gpus) - len(view.answering)
    problem = f"{silent} of {len(view.gpus)} GPUs do not answer" if silent else "not everything was read in time"
    if not view.answering:
        problem = "no GPU answers"
    if silent or not view.answering or not evidence.is_whole:
        raise ConfigError(f"--learn: {problem}; learn from a node that is well, or give it a longer --timeout")
    return expectations_from_node(view, f"{len(view.gpus)} x {next(iter(view.facts('model').values()))}, learned")


def _agent_finding(answer: AgentAnswer | None) -> HealthFinding:
    """Return whether the agent answers, where it has to; unknown if it does, and its conditions cannot be used."""
    if answer is None or not answer.reason:
        return HealthFinding(Verdict.OK, "the agent answers", "it does", name="agent")
    if answer.answered:
        remedy = "see /-/ready of the agent, and its configuration; or leave it out with --agent none"
        return HealthFinding(Verdict.UNKNOWN, "the agent judges this node", answer.reason, remedy, "agent")
    remedy = "systemctl status coldplate; or leave it out with --agent none"
    return HealthFinding(Verdict.CRITICAL, "the agent answers", answer.reason, remedy, "agent")


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
        return CheckEvidence(snapshot, family_of(config), worker.has_answered, is_whole, waited, opening, starved)
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


def _allow_time(finding: HealthFinding, view: SeenNode, evidence: CheckEvidence) -> HealthFinding:
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


def _past_xids(config: Config, options: CommandLineOptions) -> list[Xid]:
    from agent.backends.synthetic.synthetic_source import past_xids

    return past_xids(read_scenario(config), options.scenario_age, clock())
