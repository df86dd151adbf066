"""InfiniBand and RoCE adapters in sysfs: whether their driver is loaded, and which ports are up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.backends.sysfs import list_names, printable, text
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 110
FABRIC = Diagnoses("fabric")
CONTROLLER = 0x0207
"""The PCI class of InfiniBand controllers."""
MOST = 256
"""Adapters that are looked into: beyond those they are virtual functions."""


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """Each adapter on its own: one whose firmware hangs holds up no other."""
    folder = node.sysfs / "class/infiniband"
    if not node.config.backends.infiniband:
        yield FABRIC.said(folder, FABRIC.ok("not read: backends.infiniband is false"))
        return
    try:
        devices = list_names(folder)[:MOST]
    except OSError:
        devices = []
    if not devices:
        yield FABRIC.check(folder, _none, node, folder)
    for device in devices:
        yield FABRIC.check(folder / device, _adapter, folder / device, device)


def _none(node: ExaminedNode, folder: Path) -> Iterator[Diagnosis]:
    adapters = [address for address, _, kind in node.pci if kind >> 8 == CONTROLLER]
    if adapters:
        remedy = "modprobe mlx5_ib (or the adapter's driver); dmesg -T | grep -i mlx5 tells why it is not there"
        yield FABRIC.fail(f"{len(adapters)} InfiniBand adapters on the PCI bus, and no {folder}", remedy)
    else:
        yield FABRIC.ok(f"no adapter in {folder}")


def _adapter(folder: Path, device: str) -> Iterator[Diagnosis]:
    for port in list_names(folder / "ports"):
        place = folder / "ports" / port
        said = {name: text(place / name, 64) for name in ("state", "phys_state", "rate", "link_layer")}
        where = f"{printable(device)} port {printable(port)}"
        state = said["state"].partition(": ")[2]
        if state == "ACTIVE":
            yield FABRIC.ok(f"{where} is active, {said['rate']}, {said['link_layer']}")
        elif state == "INIT":
            remedy = "start a subnet manager, or look why it ignores the port: sminfo; ibdiagnet"
            yield FABRIC.warn(f"{where} has a link and no address: no subnet manager answered", remedy)
        else:
            physical = said["phys_state"].partition(": ")[2]
            remedy = "nothing if no cable is meant to be there; else look at cable and switch: mlxlink -d " + device
            yield FABRIC.warn(f"{where} is {state or said['state']} ({physical})", remedy)
