"""Run every check within a time limit: a check that does not return is a finding, and the others still have theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredError
from agent.commands.doctor import checks as all_checks
from agent.commands.doctor.doctor_finding import DoctorCheck, DoctorFinding, FindingFactory
from agent.commands.doctor.doctor_node import DoctorNode
from agent.lib.discovery import modules_in
from agent.model import Reason

TIMEOUT_SECONDS = 4.0
"""Seconds that one check may take. Rules are compiled within it on a busy node; servers are given less."""
READERS = 64
"""Checks that may hang at once: adapters, receivers and files, each on its own."""


def examine(node: DoctorNode, timeout: float = TIMEOUT_SECONDS) -> list[DoctorFinding]:
    """Return all findings, in the order of the subjects."""
    subjects = {
        rank: checks
        for module in modules_in(all_checks.__name__, all_checks.__path__)
        for rank, checks in module.CHECKS.items()
    }
    pool = FileReaderPool("doctor", timeout, READERS)
    query = DoctorCheck("agent", node.target.shown, node.query_agent)
    asked = _answers([query], pool, node.mono())  # what the running agent says is used by many
    ordered = [check for rank in sorted(subjects) for check in subjects[rank](node)]
    found = [*asked, *_answers(ordered, pool, node.mono())]
    pool.close()
    return found


def _answers(checks: Sequence[DoctorCheck], pool: FileReaderPool, mono: float) -> Iterable[DoctorFinding]:
    """Each check is a batch of its own, as if it were a device: one that hangs holds up no other."""
    batches: list[DeviceReads[list[DoctorFinding]]] = [
        DeviceReads(f"{number} {check.path}", [check]) for number, check in enumerate(checks)
    ]
    for check, (answer,) in zip(checks, pool.round(batches, mono), strict=True):
        subject = FindingFactory(check.subject)
        if not isinstance(answer, UnansweredError):
            yield from answer
        elif answer.reason is Reason.TIMEOUT:
            remedy = "look for what hangs: dmesg -T | tail; ps -eo pid,stat,wchan:30,comm | grep ' D'"
            yield subject.fail(answer.detail, remedy)
        else:
            yield subject.warn(f"cannot be examined: {answer.detail}", "please report this line")
