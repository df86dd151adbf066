"""Finds the peers: configured addresses, DNS names of several, and files in file_sd's format.

Files are read when they change, and DNS is queried periodically, apart from polling, which never waits. Known peers are
kept until others are found: a failing name server removes no peer.
"""

import json
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.lib import textfile
from agent.lib.logs import LogOnce
from agent.lib.textfile import ReadError
from agent.lib.threads import Threads
from agent.lib.wording import show_address, shown

DNS = "dns+"
MOST = 256
"""Most peers that are accepted; a rack has fewer."""
_FILE = re.compile(r"/|\.(?:json|ya?ml)$")
_CREDENTIALS = re.compile(r":.*@|^[^/]*@(?!.*\.(?:json|ya?ml)$)", re.DOTALL)
"""Credentials before an @. The name of a file may have an @, but no colon before it."""
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")


class PeerTarget(Struct, frozen=True):
    """One peer to ask. `name` is for people and labels, `addresses` are tried one after the other."""

    name: str
    host: str
    port: int
    addresses: tuple[str, ...] = ()


class HostEntry(Struct, frozen=True):
    """One agent, or with `many` one agent at each address of the name."""

    host: str
    port: int
    many: bool = False


Entry = HostEntry | Path
"""An agent, or a file that lists agents."""


def parse_entry(text: str, folder: Path) -> Entry:
    """Return an entry of `rack.peers`; relative paths start at `folder`. Raises ValueError with the remedy."""
    _refuse_credentials(text)
    if text.startswith(DNS):
        return parse_address(text[len(DNS) :], many=True)
    if "://" in text:
        raise ValueError(f"{shown(text)} is not a peer; write host:port, and set scheme: https in rack.peer")
    if _FILE.search(text):
        return folder / text
    return parse_address(text)


def parse_address(text: str, many: bool = False) -> HostEntry:
    """Parse `host:port`. Raises ValueError with the remedy."""
    _refuse_credentials(text)
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if len(bare) > 253 or not (_IPV6 if bracketed else _HOST).fullmatch(bare):
        raise ValueError(f"{shown(text)} is not a peer; write host:port, dns+name:port or the path of a file_sd file")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        raise ValueError(f"{shown(text)}: {shown(port)} is not a port; write host:port, such as {host}:19400")
    return HostEntry(bare, int(port), many)


def _refuse_credentials(text: str) -> None:
    """Reject user and password, which the peers' labels and the log would show, without repeating them."""
    if _CREDENTIALS.search(text):
        raise ValueError("an entry has a user or password before an @; give them in rack.peer, and only host:port here")


def read_file(path: Path) -> tuple[HostEntry, ...]:
    """Return the targets of a file in Prometheus's file_sd format, JSON or YAML. Raises ReadError or ValueError."""
    groups = _load(textfile.read_text(path, textfile.PEERS))
    if not isinstance(groups, list):
        raise ValueError("must be a list of groups, such as [{targets: ['node1:19400']}]")
    entries: list[HostEntry] = []
    for group in groups:
        targets = group.get("targets") if isinstance(group, dict) else None
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise ValueError("a group has no list of targets; write {targets: ['node1:19400']}")
        entries += [parse_address(target) for target in targets]
    return tuple(dict.fromkeys(entries))


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


log = logging.getLogger("coldplate.rack")

LOOK_SECONDS = 2.0
"""Seconds between two checks of the files."""
ASK_SECONDS = 30.0
"""Seconds between two queries for the same name."""
AGAIN_SECONDS = 5.0
"""Seconds after which a failed query is repeated."""


def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a name, in the order in which they should be tried. Raises OSError."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def is_literal(host: str) -> bool:
    """Return whether a host is an address already."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class Finder:
    """Keeps `targets` up to date, in a thread of its own if there is anything to look up."""

    def __init__(
        self,
        entries: Sequence[Entry],
        clock: Callable[[], float],
        resolve: Callable[[str, int], Sequence[str]] = resolve,
        threads: Threads | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self._clock = clock
        self._resolve = resolve
        self._files: dict[Path, tuple[tuple[int, ...] | None, tuple[HostEntry, ...]]] = {}
        self._names: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = {}
        self._once = LogOnce(log)
        self._stopping = threading.Event()
        self._threads = threads or Threads()
        self.targets: tuple[PeerTarget, ...] = ()
        """Swapped by reference, for any thread."""
        self.looked = False
        """Whether everything was looked up once, with or without success."""

    def start(self) -> None:
        if all(isinstance(entry, HostEntry) and is_literal(entry.host) for entry in self._entries):
            self.refresh()
            return
        self._threads.begin("rack-finder", self._run)

    def stop(self) -> None:
        """Let the thread end; if it is waiting for a name server, it is left behind."""
        self._stopping.set()

    def refresh(self) -> None:
        entries = list(self._hosts())
        self.targets = self._found(entries)  # entries that need no name server need not wait for one
        for entry in entries:
            if self._stopping.is_set():
                return
            if not is_literal(entry.host) and self._ask(entry):
                self.targets = self._found(entries)
        self.looked = True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except Exception as error:
                # A defect in this code must not stop the discovery; the known peers stay.
                self._say("finder", f"{type(error).__name__}: {error}")
            self._stopping.wait(LOOK_SECONDS)

    def _hosts(self) -> Iterator[HostEntry]:
        for entry in self._entries:
            if isinstance(entry, HostEntry):
                yield entry
            else:
                yield from self._read(entry)

    def _read(self, path: Path) -> tuple[HostEntry, ...]:
        before, entries = self._files.get(path, (None, ()))
        stamp = before
        try:
            stamp = textfile.stamp_of(path)
            if stamp != before:
                entries = read_file(path)
                self._say(str(path), "")
        except (OSError, ReadError) as error:
            stamp = None
            self._say(str(path), error.problem if isinstance(error, ReadError) else error.strerror or str(error))
        except ValueError as error:  # not read again until it changes
            self._say(str(path), str(error))
        self._files[path] = (stamp, entries)
        return entries

    def _ask(self, entry: HostEntry) -> bool:
        """Look a name up if it is due; returns whether it was."""
        key = (entry.host, entry.port)
        due, addresses = self._names.get(key, (-inf, ()))
        if self._clock() < due:
            return False
        pause = ASK_SECONDS
        try:
            addresses = tuple(self._resolve(*key)) or addresses
            self._say(entry.host, "")
        except (OSError, UnicodeError) as error:
            pause = AGAIN_SECONDS
            self._say(entry.host, getattr(error, "strerror", None) or str(error))
        self._names[key] = (self._clock() + pause, addresses)
        return True

    def _found(self, entries: Sequence[HostEntry]) -> tuple[PeerTarget, ...]:
        targets: dict[str, PeerTarget] = {}
        for entry in entries:
            for target in self._targets(entry):
                targets.setdefault(target.name, target)
        if len(targets) > MOST:
            self._say("peers", f"{len(targets)} peers found; the limit is {MOST}, the rest are ignored")
        return tuple(targets.values())[:MOST]

    def _targets(self, entry: HostEntry) -> Iterator[PeerTarget]:
        host, port = entry.host, entry.port
        if is_literal(host):
            addresses: tuple[str, ...] = (host,)
        elif (host, port) in self._names:
            addresses = self._names[host, port][1]
        else:
            return  # not queried yet
        if not entry.many:
            yield PeerTarget(show_address(host, port), host, port, addresses)
            return
        for address in addresses:
            yield PeerTarget(show_address(address, port), host, port, (address,))

    def _say(self, subject: str, problem: str) -> None:
        """Log a problem once, and once that it is over."""
        if problem:
            facts = {"what": subject, "problem": problem}
            self._once.problem(subject, "peer discovery failed: keeping the known peers", cause=problem, facts=facts)
        else:
            self._once.over(subject, "peer discovery recovered", facts={"what": subject})
