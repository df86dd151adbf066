"""Run every check within a time limit: a check that does not return is a finding, and the others still have theirs."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredError
from agent.backends.jobs.kubelet import SOCKETS
from agent.broker.asking import SOCKET
from agent.commands.doctor.checks import gpu_driver, host_access, installation, job_access, serving
from agent.commands.doctor.doctor_finding import DoctorFinding, fail, warn
from agent.commands.doctor.doctor_node import DoctorNode, PathAndCheck, RunCheck
from agent.model import Reason

TIMEOUT_SECONDS = 4.0
"""Seconds that one check may take. Rules are compiled within it on a busy node; servers are given less."""
READERS = 64
"""Checks that may hang at once: adapters, receivers and files, each on its own."""
SUBJECTS: tuple[tuple[str, Callable[[DoctorNode], Iterable[PathAndCheck]]], ...] = (
    ("configuration", installation.configuration_checks),
    ("agent", lambda node: [(node.target.shown, installation.check_agent)]),
    ("driver", gpu_driver.driver_checks),
    ("devices", lambda node: [(node.root / "dev", gpu_driver.check_devices)]),
    ("kernel log", lambda node: [(node.root / "dev/kmsg", gpu_driver.check_kernel_log)]),
    ("processor energy", lambda node: [(node.sysfs / host_access.POWERCAP, host_access.check_rapl)]),
    ("BMC", host_access.bmc_checks),
    ("processes", lambda node: [(node.procfs / "mounts", job_access.check_processes)]),
    ("broker", lambda node: [(node.root / SOCKET.lstrip("/"), job_access.check_broker)]),
    ("scheduler", lambda node: [(node.procfs, job_access.check_schedulers), (SOCKETS[0], job_access.check_kubelet)]),
    ("fabric", host_access.fabric_checks),
    ("clock", lambda _: [("adjtimex", host_access.check_clock)]),
    ("port", lambda node: [(f"port {port}", partial(serving.check_port, port)) for _, port in node.listen if port]),
    ("rules", lambda node: [("rules.files", serving.check_rule_files), (node.target.shown, serving.check_evaluations)]),
    ("receivers", serving.receiver_checks),
    ("scrapes", lambda node: [(node.procfs / "net/tcp", serving.check_scrapes)]),
    ("state", installation.state_checks),
    ("unit", lambda node: [(node.root / "run/systemd/system", installation.check_units)]),
    ("sandbox", lambda node: [(node.target.shown, installation.check_sandbox)]),
)
"""What is examined, in the order of the output, each subject with its checks of a node."""


class DoctorCheck(Struct):
    """One thing to look at, apart from all others: where it hangs, it alone is not known."""

    subject: str
    path: str
    run: RunCheck
    node: DoctorNode

    def read(self) -> list[DoctorFinding]:
        """Return what is found there; what may not be read is a finding as well."""
        try:
            return list(self.run(self.node))
        except OSError as error:
            remedy = "run coldplate doctor as root" if isinstance(error, PermissionError) else ""
            return [warn(f"{error.filename or self.path}: {error.strerror or error}", remedy)]


def examine(node: DoctorNode, timeout: float = TIMEOUT_SECONDS) -> list[DoctorFinding]:
    """Return all findings, in the order of the subjects."""
    pool = FileReaderPool("doctor", timeout, READERS)
    query = DoctorCheck("agent", node.target.shown, DoctorNode.query_agent, node)
    query_findings = list(_answers([query], pool, node.mono()))  # what the running agent says is used by many
    checks = [DoctorCheck(name, str(path), run, node) for name, make in SUBJECTS for path, run in make(node)]
    findings = [*query_findings, *_answers(checks, pool, node.mono())]
    pool.close()
    return findings


def _answers(checks: list[DoctorCheck], pool: FileReaderPool, mono: float) -> Iterator[DoctorFinding]:
    """Read each check as a batch of its own, as if it were a device: one that hangs holds up no other."""
    batches = [DeviceReads(f"{number} {check.path}", [check]) for number, check in enumerate(checks)]
    for check, (answer,) in zip(checks, pool.round(batches, mono), strict=True):
        if not isinstance(answer, UnansweredError):
            findings = answer
        elif answer.reason is Reason.TIMEOUT:
            remedy = "look for what hangs: dmesg -T | tail; ps -eo pid,stat,wchan:30,comm | grep ' D'"
            findings = [fail(answer.detail, remedy)]
        else:
            findings = [warn(f"cannot be examined: {answer.detail}", "please report this line")]
        yield from (replace(finding, subject=check.subject) for finding in findings)
