"""Whether a Prometheus server reaches the agent: by who is connected to its port, since scrapers stay connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address

from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.commands.doctor.subjects.listen_port import ESTABLISHED, port_of, sockets

RANK = 160
SCRAPES = Diagnoses("scrapes")
LOOPBACK = ("127.", "::1", "localhost", "[::1]")
MOST_SHOWN = 4


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, while an agent runs."""
    yield SCRAPES.check(node.procfs / "net/tcp", _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    hosts = [host for host, _ in node.listen]
    if hosts and all(host.startswith(LOOPBACK) for host in hosts):
        remedy = 'web: {listen: [":19400"]}, unless a proxy on this node is scraped instead'
        yield SCRAPES.warn(f"the agent listens on {', '.join(hosts)} alone: no other node can scrape it", remedy)
        return
    if node.agent is None:
        yield SCRAPES.ok("no agent runs, so no server can scrape it")
        return
    peers = {
        peer_of(each[2]) for each in sockets(node) if each[3] == ESTABLISHED and port_of(each[1]) == node.target.port
    }
    others = sorted(peer for peer in peers if not peer.startswith(LOOPBACK))
    if others:
        more = f" and {len(others) - MOST_SHOWN} more" if len(others) > MOST_SHOWN else ""
        yield SCRAPES.ok(f"connected from {', '.join(others[:MOST_SHOWN])}{more}")
        return
    yield SCRAPES.warn(
        "no other host is connected at this moment; a server that scrapes at long intervals may not be seen here",
        f'ask the server for up{{job="coldplate"}}; from it, curl http://HOST:{node.target.port}/-/ready shows whether '
        "a firewall is between; add the node to its scrape_configs",
    )


def peer_of(address: str) -> str:
    """The address of ADDRESS:PORT in the tables: words of four bytes, each in the order of x86-64 and aarch64."""
    words = bytes.fromhex(address.partition(":")[0])
    turned = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    if len(turned) == 4:
        return str(IPv4Address(turned))
    found = IPv6Address(turned)
    return str(found.ipv4_mapped or found)
