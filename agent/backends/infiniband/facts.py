"""The facts of ports and adapters, which are labels of one row.

They describe a port, not its activity, so a known fact stays while its file hangs.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.backends.file_relay import FileRelay, Leg, Unread
from agent.backends.infiniband.attribute import Pread, TextFile
from agent.backends.infiniband.parse import reason_of, why
from agent.backends.infiniband.port import Port
from agent.backends.sysfs import printable
from agent.catalogue.infiniband import INFO
from agent.model import Gap, Reading

DEVICE_FACTS = (("board_id", "board_id"), ("firmware_version", "fw_ver"), ("hca_type", "hca_type"))
PORT_FACT = ("link_layer", "link_layer")

Answer = str | OSError | Unread


def describe(root: str, ports: Iterable[Port], relay: FileRelay, pread: Pread, mono: float) -> list[Reading | Gap]:
    """For each port its facts, or why they are missing."""
    devices: dict[str, list[Port]] = {}
    for port in ports:
        devices.setdefault(port.device, []).append(port)
    legs = []
    for device, group in devices.items():
        paths = [f"{root}/{device}/{file}" for _, file in DEVICE_FACTS]
        paths += [f"{port.directory}/{PORT_FACT[1]}" for port in group]
        legs.append(Leg(device, [TextFile(path, pread) for path in paths]))
    told: list[Reading | Gap] = []
    for leg, group, answers in zip(legs, devices.values(), relay.round(legs, mono), strict=True):
        paths = [item.path for item in leg.items]
        shared = len(DEVICE_FACTS)
        for place, port in enumerate(group, shared):
            told.append(_of(port, [*answers[:shared], answers[place]], [*paths[:shared], paths[place]]))
    return told


def _of(port: Port, answers: list[Answer], paths: list[str]) -> Reading | Gap:
    """A fact that cannot be read is an empty label. If none can be read, or an unknown one hangs, the row is a gap."""
    for place, (answer, path) in enumerate(zip(answers, paths, strict=True)):
        if isinstance(answer, str):
            port.facts[path] = answer
        elif isinstance(answer, Unread) and path in port.facts:
            answers[place] = port.facts[path]
        elif isinstance(answer, Unread):
            return Gap(INFO, port.entity, answer.reason, f"{path}: {answer.detail}")
    errors = [(path, each) for path, each in zip(paths, answers, strict=True) if isinstance(each, OSError)]
    texts = [printable(each) if isinstance(each, str) else "" for each in answers]
    if errors and not any(texts):
        path, error = errors[-1]
        return Gap(INFO, port.entity, reason_of(error), f"{path}: {why(error)}")
    labels = (*(label for label, _ in DEVICE_FACTS), PORT_FACT[0])
    return Reading(port.info(tuple(zip(labels, texts, strict=True))), 1)
