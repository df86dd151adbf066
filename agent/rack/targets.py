"""Peers as configured: an address, a DNS name of several, or a file in file_sd's format."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.lib import textfile
from agent.lib.wording import shown

DNS = "dns+"
MOST = 256
"""Most peers that are accepted; a rack has fewer."""
_FILE = re.compile(r"/|\.(?:json|ya?ml)$")
_CREDENTIALS = re.compile(r":.*@|^[^/]*@(?!.*\.(?:json|ya?ml)$)", re.DOTALL)
"""Credentials before an @. The name of a file may have an @, but no colon before it."""
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class PeerTarget:
    """One peer to ask. `name` is for people and labels, `addresses` are tried one after the other."""

    name: str
    host: str
    port: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One agent, or with `many` one agent at each address of the name."""

    host: str
    port: int
    many: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that lists agents."""

    path: Path


Entry = HostEntry | FileEntry


def parse_entry(text: str, folder: Path) -> Entry:
    """An entry of `rack.peers`; relative paths start at `folder`. Raises ValueError with the remedy."""
    _refuse_credentials(text)
    if text.startswith(DNS):
        return parse_address(text[len(DNS) :], many=True)
    if "://" in text:
        raise ValueError(f"{shown(text)} is not a peer; write host:port, and set scheme: https in rack.peer")
    if _FILE.search(text):
        return FileEntry(folder / text)
    return parse_address(text)


def parse_address(text: str, many: bool = False) -> HostEntry:
    """`host:port`. Raises ValueError with the remedy."""
    _refuse_credentials(text)
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not (_IPV6 if bracketed else _HOST).fullmatch(bare) or len(bare) > 253:
        raise ValueError(f"{shown(text)} is not a peer; write host:port, dns+name:port or the path of a file_sd file")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        raise ValueError(f"{shown(text)}: {shown(port)} is not a port; write host:port, such as {host}:19400")
    return HostEntry(bare, int(port), many)


def _refuse_credentials(text: str) -> None:
    """Reject user and password, which the peers' labels and the log would show, without repeating them."""
    if _CREDENTIALS.search(text):
        raise ValueError("an entry has a user or password before an @; give them in rack.peer, and only host:port here")


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_file(path: Path) -> tuple[HostEntry, ...]:
    """The targets of a file in Prometheus's file_sd format, JSON or YAML. Raises ReadError or ValueError."""
    groups = _load(textfile.read_text(path, textfile.PEERS))
    if not isinstance(groups, list):
        raise ValueError("must be a list of groups, such as [{targets: ['node1:19400']}]")
    found: list[HostEntry] = []
    for group in groups:
        targets = group.get("targets") if isinstance(group, dict) else None
        if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):
            raise ValueError("a group has no list of targets; write {targets: ['node1:19400']}")
        found += [parse_address(each) for each in targets]
    return tuple(dict.fromkeys(found))


def _load(text: str) -> Any:
    """Parse JSON, and YAML only if that fails, although YAML reads JSON too: JSON is a hundred times as fast."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    from agent.lib import yamltree

    try:
        return yamltree.load(text, yamltree.Bounds(depth=16))
    except yamltree.YamlError as error:
        raise ValueError(f"is neither JSON nor YAML: {error}") from None
