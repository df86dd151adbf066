"""Check what else of the node is read: InfiniBand and RoCE adapters, the BMC, RAPL's energy counters, and the clock.

The BMC is checked over Redfish as configured, and over IPMI as the kernel shows it. Only root may read the counters
below /sys/class/powercap unless a udev rule allows more. Racks sum their power by whole seconds, and alerts carry
times, so the clock must be synchronised: adjtimex(2) reports it without privileges, whichever daemon keeps the clock.
"""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from agent.backends.power import bmc_of, plausible_watts
from agent.backends.power.redfish_power import RedfishPower
from agent.backends.protocol import DeviceError
from agent.backends.sysfs import list_if_possible, list_names, pci_devices, printable, text
from agent.broker.ipmidev import DEVICES
from agent.catalogue.node import NODE_POWER
from agent.commands.doctor.doctor_finding import DoctorFinding, fail, ok, warn
from agent.commands.doctor.doctor_node import READ, DoctorNode, PathAndCheck
from agent.config.schema import ConfigError
from agent.lib.http_answers import HttpError, HttpFault
from agent.lib.http_target import HttpTarget
from agent.model import Reason

CONTROLLER = 0x0207
"""The PCI class of InfiniBand controllers."""
MAX_ADAPTERS = 256
"""Adapters that are looked into: beyond those they are virtual functions."""


def fabric_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    """Yield each adapter on its own: one whose firmware hangs holds up no other."""
    folder = node.sysfs / "class/infiniband"
    if not node.config.backends.infiniband:
        yield folder, lambda _: [ok("not read: backends.infiniband is false")]
        return
    devices = list_if_possible(folder)[:MAX_ADAPTERS]
    if not devices:
        yield folder, partial(_none, folder)
    for device in devices:
        yield folder / device, partial(_adapter, folder / device)


def _none(folder: Path, node: DoctorNode) -> Iterator[DoctorFinding]:
    adapters = [device.address for device in pci_devices(node.sysfs) if device.kind >> 8 == CONTROLLER]
    if adapters:
        remedy = "modprobe mlx5_ib (or the adapter's driver); dmesg -T | grep -i mlx5 shows why it is missing"
        yield fail(f"{len(adapters)} InfiniBand adapters on the PCI bus, and no {folder}", remedy)
    else:
        yield ok(f"no adapter in {folder}")


def _adapter(folder: Path, _: DoctorNode) -> Iterator[DoctorFinding]:
    for port in list_names(folder / "ports"):
        place = folder / "ports" / port
        attributes = {name: text(place / name, 64) for name in ("state", "phys_state", "rate", "link_layer")}
        where = f"{printable(folder.name)} port {printable(port)}"
        state = attributes["state"].partition(": ")[2]
        if state == "ACTIVE":
            yield ok(f"{where} is active, {attributes['rate']}, {attributes['link_layer']}")
        elif state == "INIT":
            remedy = "start a subnet manager, or look why it ignores the port: sminfo; ibdiagnet"
            yield warn(f"{where} has a link and no address: no subnet manager answered", remedy)
        else:
            physical = attributes["phys_state"].partition(": ")[2]
            remedy = (
                "nothing if no cable is meant to be there; else look at cable and switch: mlxlink -d " + folder.name
            )
            yield warn(f"{where} is {state or attributes['state']} ({physical})", remedy)


BMC_DEADLINE_SECONDS = 3.0
"""Seconds for a controller whose TLS handshake alone may take one, and which lists its chassis one by one."""
BMC_REMEDIES = {
    HttpFault.UNTRUSTED: "set backends.redfish.ca_file to the controller's own, or verify: false",
    HttpFault.UNREADABLE: "give the agent's user that file: chown coldplate, chmod 0400",
    HttpFault.UNREACHABLE: "correct backends.redfish.url, or the route to the management network",
    HttpFault.TIMEOUT: "curl -kv the URL; a controller that hangs may need a cold reset: ipmitool mc reset cold",
    HttpFault.GARBAGE: "correct backends.redfish.url: what answers there is not a Redfish service",
}


def bmc_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    """Yield Redfish where it is configured, IPMI where it is asked for."""
    sources = node.config.backends.power
    try:
        target = bmc_of(node.config.backends)
    except ConfigError:
        target = None  # the subject of the configuration says so
    if target is not None:
        yield target.shown, partial(_redfish, target)
    if "ipmi" in sources:
        yield "/dev/ipmi0", _ipmi


def _redfish(target: HttpTarget, node: DoctorNode) -> Iterator[DoctorFinding]:
    """Read the node's power with one login: more wrong ones would have the controller lock the account."""
    redfish = node.config.backends.redfish
    chassis = None if redfish is None else redfish.chassis
    where = f"Redfish at {target.shown}"
    with closing(RedfishPower(target, chassis, node.mono, node.mono() + BMC_DEADLINE_SECONDS)) as power:
        try:
            yield ok(f"{where} takes the login, and reports {plausible_watts(power):g} W")
        except DeviceError as error:
            yield _without_power(where, error, node) if power.accepted else _without_answer(where, error)


def _without_power(where: str, error: DeviceError, node: DoctorNode) -> DoctorFinding:
    """Return what is wrong with a controller that takes the login."""
    if error.reason is Reason.TIMEOUT and node.agent is not None:
        for reading in node.agent.readings.get(NODE_POWER.name, ()):
            if ("source", "redfish") in reading.series.all_labels:
                return ok(f"{where} takes the login, and the agent reads {reading.value:g} W")
    remedy = "set backends.redfish.chassis to the node's chassis, or take redfish out of backends.power"
    if error.reason is Reason.TIMEOUT:
        remedy = "start the agent, which waits longer, and run coldplate doctor again"
    return warn(f"{where} takes the login, but its power cannot be read: {error.detail}", remedy)


def _without_answer(where: str, error: DeviceError) -> DoctorFinding:
    cause = error.__cause__
    if isinstance(cause, HttpError):
        return fail(f"{where}: {cause}", BMC_REMEDIES[cause.fault])
    if error.reason is Reason.DENIED:
        remedy = "correct backends.redfish.username and password_file; the account needs the role ReadOnly"
        return fail(f"{where} refuses the login: {error.detail}", remedy)
    return fail(f"{where}: {error.detail}", BMC_REMEDIES[HttpFault.GARBAGE])


def _ipmi(node: DoctorNode) -> Iterator[DoctorFinding]:
    device = next((path for path in DEVICES if (node.root / path.lstrip("/")).exists()), None)
    broker = node.unit_file("coldplate-broker.socket")
    if device is None:
        yield ok("no IPMI device: a node without a controller, or without the module ipmi_devintf")
    elif broker is None and not node.user.overrides:
        remedy = "make install; systemctl enable --now coldplate-broker.socket"
        yield warn(f"{device} is there, and no broker that the agent could ask for the node's power", remedy)
    else:
        yield ok(f"{device} is there, for the broker to ask")


POWERCAP = "class/powercap"
RAPL_REMEDY = "make install (70-coldplate.rules), then udevadm trigger --action=change --subsystem-match=powercap"


def check_rapl(node: DoctorNode) -> Iterator[DoctorFinding]:
    if "rapl" not in node.config.backends.power:
        return
    folder = node.sysfs / POWERCAP
    counters = sorted(folder.glob("intel-rapl:*/energy_uj"))
    refused = [path for path in counters if not node.user.may(READ, path.stat())]
    if not counters:
        yield ok(f"this machine has no RAPL in {folder}")
    elif refused:
        subject = f"{node.user.name} may not read {refused[0]}" + (
            f" and {len(refused) - 1} more" if refused[1:] else ""
        )
        yield warn(f"{subject}: no coldplate_node_rapl_energy_joules_total", RAPL_REMEDY)
    else:
        yield ok(f"{node.user.name} may read all {len(counters)} counters")


UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of linux/timex.h."""
MAX_ERROR_SECONDS = 0.5
"""Seconds by which a clock may be off before the seconds of two nodes are no longer the same."""


class KernelTimex(ctypes.Structure):
    """The beginning of struct timex of adjtimex(2), and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def check_clock(_: DoctorNode) -> Iterator[DoctorFinding]:
    timex = KernelTimex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, "the kernel does not report its clock")
    yield judge_clock(timex.status, timex.maxerror / 1e6)


def judge_clock(status: int, error: float) -> DoctorFinding:
    """Return what the kernel's `status` bits and its largest `error`, in seconds, say."""
    if status & UNSYNCHRONISED:
        remedy = "systemctl enable --now chrony (or systemd-timesyncd); chronyc tracking"
        return warn("not synchronised: the rack's sums and the times of alerts are off", remedy)
    if error > MAX_ERROR_SECONDS:
        return warn(f"synchronised, but may be off by {error:.1f} s", "chronyc sources: look for a nearer server")
    return ok(f"synchronised, off by at most {error * 1000:.0f} ms")
