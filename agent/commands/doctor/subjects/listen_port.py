"""Whether the port that the agent serves on is its own, free, or somebody else's.

By /proc/net/tcp and tcp6 (Documentation/networking/proc_net_tcp.rst), in which 0A is a listening socket.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from agent.backends.sysfs import list_names
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode, SeenProcess, whole

RANK = 130
PORT = Diagnoses("port")
LISTENING, ESTABLISHED = "0A", "01"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One for each address of the configuration."""
    for _, port in node.listen:
        if port:
            yield PORT.check(f"port {port}", _look, node, port)


def sockets(node: ExaminedNode) -> Iterator[list[str]]:
    """The lines of both tables in their columns. A table that is not there has none."""
    for name in ("tcp", "tcp6"):
        try:
            lines = whole(node.procfs / "net" / name).splitlines()[1:]
        except FileNotFoundError:
            continue
        yield from (columns for line in lines if len(columns := line.split()) > 9)


def port_of(address: str) -> int:
    """The port of ADDRESS:PORT in the tables; it is hexadecimal."""
    return int(address.rpartition(":")[2], 16)


def _look(node: ExaminedNode, port: int) -> Iterator[Diagnosis]:
    inodes = {each[9] for each in sockets(node) if each[3] == LISTENING and port_of(each[1]) == port}
    ours = node.agent is not None and node.target.port == port
    if not inodes:
        yield PORT.ok(f"{port} is free")
    elif ours:
        yield PORT.ok(f"{port} is the running agent's")
    else:
        holder = _holder(node, inodes)
        if holder is not None and "coldplate" in f"{holder.name} {holder.cgroup}":
            yield PORT.ok(f"{port} is held by {holder.name}, process {holder.pid}")
            return
        who = f"{holder.name}, process {holder.pid}" if holder else "another process; as root, doctor names it"
        remedy = f'stop it, or choose another port: web: {{listen: [":{port + 1}"]}}'
        yield PORT.fail(f"{port} is taken by {who}, and no agent answers there", remedy)


def _holder(node: ExaminedNode, inodes: set[str]) -> SeenProcess | None:
    """The process that holds one of these sockets; None where only root may see it."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for each in node.processes:
        folder = node.procfs / str(each.pid) / "fd"
        try:
            if any(_link(f"{folder}/{name}") in wanted for name in list_names(folder)):
                return each
        except OSError:
            continue
    return None


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - one call for each of many descriptors
    except OSError:
        return ""
