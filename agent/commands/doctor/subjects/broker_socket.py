"""The broker: whether its socket is there, and whether it answers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from agent.backends.jobs.process_table import parse_stat
from agent.broker.asking import SOCKET, BrokerClient, BrokerError, explained
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 90
BROKER = Diagnoses("broker")
START = "systemctl enable --now coldplate-broker.socket"
LOST = "job names, accounts and partitions, and power by IPMI, are missing"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One: it is asked for the job variables of this very process."""
    if node.config.backends.devices != "synthetic":
        yield BROKER.check(node.root / SOCKET.lstrip("/"), _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    path = node.root / SOCKET.lstrip("/")
    if not path.exists():
        start = START if node.unit_file("coldplate-broker.socket") else f"make install; {START}"
        yield BROKER.warn(f"{path} is not there: {LOST}", start)
        return
    owner = path.stat().st_uid
    if node.user.uid not in (None, owner, 0):
        remedy = (
            f"SocketUser=coldplate in coldplate-broker.socket, then systemctl restart coldplate-broker.socket; {START}"
        )
        yield BROKER.fail(f"{path} belongs to uid {owner}, and {node.user.name} is another: it gets no answer", remedy)
    if os.geteuid() not in (0, owner):
        yield BROKER.ok(f"{path} is there; whether it answers, only root and its owner can ask")
        return
    try:
        BrokerClient(str(path)).variables(os.getpid(), _started())
    except BrokerError as error:
        yield BROKER.fail(explained(error), f"journalctl -u coldplate-broker -n 20; {START}")
    except OSError as error:
        remedy = "compare its unit with packaging/systemd/coldplate-broker.service; journalctl -u coldplate-broker"
        yield BROKER.fail(f"it answers, and could not read a process: {error.strerror}", remedy)
    else:
        yield BROKER.ok(f"{path} answers")


def _started() -> int:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - the broker looks at this process, wherever others are
        return parse_stat(file.read(1024)).started
