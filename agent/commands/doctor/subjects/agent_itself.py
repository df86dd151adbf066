"""Whether the agent runs, is well, and is the version that is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent import __version__
from agent.commands.doctor.agent_view import AgentView
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 20
AGENT = Diagnoses("agent")
STALE_SECONDS = 30.0
"""Seconds after which a snapshot is no longer what a reload or a slow lane explains."""
RESTARTS = 3.0


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, by what the agent said when it was asked."""
    yield AGENT.check(node.target.shown, _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    view = node.agent
    if view is None:
        start = "systemctl enable --now coldplate.service" if node.unit else "coldplate run, or make install"
        if node.agent_pid is not None:
            log = "journalctl -u coldplate -n 50; with another address, coldplate doctor --url http://HOST:PORT"
            yield AGENT.fail(f"process {node.agent_pid} runs, and does not answer: {node.silence}", log)
        else:
            yield AGENT.warn(f"no agent runs ({node.silence})", start)
        return
    version = _version(view)
    if version != __version__:
        remedy = "systemctl restart coldplate.service"
        yield AGENT.warn(f"version {version} runs, and {__version__} is installed", remedy)
    yield from _troubles(view)
    if view.is_synthetic:
        yield AGENT.warn(
            "its devices are synthetic: nothing that it says of GPUs is real", "leave out --scenario and --backend"
        )
    yield AGENT.ok(f"version {version} runs at {node.target.shown}, its last sample is {view.age:.1f} s old")


def _version(view: AgentView) -> str:
    return next(iter(view.labelled("coldplate_build_info", "version", 1)), "of no known number")


def _troubles(view: AgentView) -> Iterator[Diagnosis]:
    if view.is_paused:
        yield AGENT.warn("it has released the driver, as coldplate pause asked it to", "coldplate pause --end")
    if view.age > STALE_SECONDS:
        yield AGENT.fail(f"the last sample is {view.age:.0f} s old", "journalctl -u coldplate -n 50")
    if 0.0 in view.values("coldplate_config_last_reload_successful"):
        remedy = "journalctl -u coldplate | grep reload; correct the file, then systemctl reload coldplate"
        yield AGENT.fail("the last reload was refused: it works with the configuration before", remedy)
    if 0.0 in view.values("coldplate_web_config_last_reload_successful"):
        remedy = "journalctl -u coldplate | grep 'web configuration'; correct the file, the certificate or the key"
        yield AGENT.fail("it protects its pages by a former web configuration: the new one was refused", remedy)
    for thread in view.labelled("coldplate_thread_up", "thread", 0):
        yield AGENT.fail(f"its thread {thread} is stuck or failed", "journalctl -u coldplate -n 50")
    if 0.0 in view.values("coldplate_worker_up") and not view.is_paused:
        yield AGENT.fail("its device worker does not run or does not answer", "journalctl -u coldplate -n 50; dmesg -T")
    if max(view.values("coldplate_worker_restarts_total"), default=0) > RESTARTS:
        count = max(view.values("coldplate_worker_restarts_total"))
        yield AGENT.warn(f"its device worker was restarted {count:.0f} times", "journalctl -u coldplate | grep worker")
    for name in view.labelled("coldplate_state_write_successful", "file", 0):
        yield AGENT.fail(f"it cannot write {name}", "journalctl -u coldplate | grep state; see the line on state below")
