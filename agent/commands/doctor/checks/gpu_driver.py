"""Check NVIDIA's kernel module and library, the device nodes, and the kernel log.

The library is neither loaded nor opened here: a driver that hangs would hang doctor, too. The module has its version in
/proc/driver/nvidia/version, the library in its file name, and the loader's cache (ld.so.cache(5)) says where it is. The
kernel log carries XIDs while the driver hangs, and is the only source of SXids.
"""

import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from agent.backends.sysfs import list_names, text, text_if_possible
from agent.commands.doctor.doctor_finding import DoctorFinding, fail, ok, warn
from agent.commands.doctor.doctor_node import READ, WRITE, DoctorNode, PathAndCheck, read_procfs
from agent.lib.wording import counted
from agent.model import Outcome, Reason

LIBRARY = "libnvidia-ml.so.1"
FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
           "usr/lib/wsl/lib")  # fmt: skip
"""Where distributions, containers and WSL have it, for roots without a cache of the loader."""
CACHE = 1 << 24
VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]+)")
_IN_CACHE = re.compile(rb"(/[^\0]{1,4096}/libnvidia-ml\.so\.1)\0")
_IN_NAME = re.compile(r"libnvidia-ml\.so\.([0-9]+(?:\.[0-9]+)+)")


def driver_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    """Yield the module with its GPUs, the library, and Python's binding to it."""
    if not node.has_driver:
        reason = f"backends.devices is {node.config.backends.devices}"
        yield "configuration", lambda _: [ok(f"not needed: {reason}")]
        return
    yield node.procfs / "driver/nvidia/version", _module
    yield LIBRARY, _library
    yield "pynvml", _binding
    yield node.root / "run/nvidia-persistenced", _persistence


def module_version(node: DoctorNode) -> str:
    """Return the version of the kernel module; empty where none is loaded. Raises OSError."""
    try:
        version_text = text(node.procfs / "driver/nvidia/version")
    except FileNotFoundError:
        return ""
    match = VERSION.search(version_text)
    return match[1] if match else "of unknown number"


def _module(node: DoctorNode) -> Iterator[DoctorFinding]:
    version, gpus = module_version(node), node.gpus
    read = _agent_values(node, "coldplate_gpu_up").count(1.0)  # a driver in another kernel (WSL) shows nothing in /proc
    if not version and read:
        yield ok(f"no /proc/driver/nvidia, but the agent reads {counted(read, 'GPU')}")
    elif not version and gpus:
        remedy = "modprobe nvidia; if that fails, dmesg -T | grep -i nvrm shows why"
        gpu_count = counted(len(gpus), "NVIDIA GPU")
        yield fail(f"{gpu_count} on the PCI bus, and the kernel module nvidia is not loaded", remedy)
    elif not version:
        remedy = "install the driver, or set backends: {devices: none} on nodes without GPUs"
        report = fail if node.config.backends.devices == "nvml" else warn
        yield report("no NVIDIA GPU on the PCI bus, and no driver", remedy)
    else:
        folder = node.procfs / "driver/nvidia/gpus"
        driver_gpus = len(list_names(folder)) if folder.is_dir() else 0
        if gpus and driver_gpus < len(gpus):
            remedy = "dmesg -T | grep -iE 'nvrm|xid|fallen off' shows which one failed; then reset or reseat it"
            yield fail(f"module {version} took {driver_gpus} of the {len(gpus)} GPUs on the PCI bus", remedy)
        else:
            yield ok(f"kernel module {version} with {counted(driver_gpus, 'GPU')}")


def _agent_values(node: DoctorNode, metric: str) -> list[float]:
    """Return what the running agent reads of the GPUs, if they are real ones."""
    return [] if node.agent is None or node.agent.is_synthetic else node.agent.values(metric)


def _library(node: DoctorNode) -> Iterator[DoctorFinding]:
    path, module = find_library(node.root), module_version(node)
    if path is None:
        if module or node.gpus:
            remedy = "install the driver's libraries (Debian: libnvidia-ml1), then ldconfig"
            yield fail(f"{LIBRARY} is nowhere", remedy)
        return
    match = _IN_NAME.search(os.path.realpath(path))
    version = match[1] if match else ""
    if module and version and module[0].isdigit() and version != module:
        remedy = (
            "reboot, or without GPU processes: coldplate pause --for 30m; systemctl stop nvidia-persistenced; "
            "rmmod and modprobe nvidia"
        )
        yield fail(f"{path} is {version}, and the loaded module is {module}: NVML refuses to work", remedy)
    else:
        yield ok(f"{path} {version}".rstrip())


def find_library(root: Path) -> Path | None:
    """Return where the loader finds the library, by its cache or in the usual folders. Raises OSError."""
    cache = root / "etc/ld.so.cache"
    places = []
    if cache.is_file():
        with cache.open("rb") as file:
            places = [
                root / library.decode("utf-8", "replace").lstrip("/") for library in _IN_CACHE.findall(file.read(CACHE))
            ]
    places += [root / folder / LIBRARY for folder in FOLDERS]
    return next((path for path in places if path.exists()), None)


def _binding(_: DoctorNode) -> Iterator[DoctorFinding]:
    if find_spec("pynvml") is None:
        yield fail("Python's module pynvml is missing", "make install; or pip install nvidia-ml-py")


def _persistence(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not module_version(node) or any(process.name.startswith("nvidia-persiste") for process in node.processes):
        return
    enabled = _agent_values(node, "coldplate_gpu_persistence_enabled")
    if not enabled or not all(enabled):  # it may also be on without the daemon, by the driver's older switch
        yield warn(
            "nvidia-persistenced does not run: without persistence mode GPUs sleep between users, and the agent may "
            "find no device nodes",
            "systemctl enable --now nvidia-persistenced",
        )


GPU = re.compile(r"nvidia[0-9]+")


def check_devices(node: DoctorNode) -> Iterator[DoctorFinding]:
    """Look at all nodes of /dev at once; none is opened."""
    if not node.has_driver or not module_version(node):
        return
    dev = node.root / "dev"
    gpus = [name for name in list_names(dev) if GPU.fullmatch(name)]
    there = [*gpus, *(name for name in ("nvidiactl",) if (dev / name).exists())]
    if len(there) == len(gpus) or not gpus or len(gpus) < len(node.gpus):
        yield fail(
            f"{dev} has {len(gpus)} GPUs{'' if len(there) > len(gpus) else ' and no nvidiactl'}, the PCI bus has "
            f"{len(node.gpus)}: the agent's unit may not make the nodes",
            "nvidia-modprobe -c 0 -u; systemctl enable --now nvidia-persistenced makes them at each boot",
        )
    refused = [name for name in there if not node.user.may(READ | WRITE, (dev / name).stat())]
    if refused:
        yield fail(
            f"{node.user.name} may not open {', '.join(f'{dev}/{name}' for name in refused)}",
            "set NVreg_DeviceFileMode=0666 for the module nvidia, or SupplementaryGroups= in the unit",
        )
    elif gpus:
        yield ok(f"{node.user.name} may open {', '.join(there)}")


HANDED = "StandardInput=file:/dev/kmsg"
KERNEL_LOG_REMEDY = f"in the unit, as in packaging/systemd/coldplate.service: {HANDED} and DeviceAllow=/dev/kmsg r"


def check_kernel_log(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not node.has_driver:
        return
    path = node.root / "dev/kmsg"
    if node.agent is not None and node.agent.reports:
        report = next((report for report in node.agent.reports if report.backend == "kmsg"), None)
        gaps = () if report is None else report.gaps
        denied = next((gap for gap in gaps if gap.reason is Reason.DENIED), None)
        if denied is not None:
            yield warn(f"the agent may not read it: {denied.detail}", KERNEL_LOG_REMEDY)
        elif report is not None and report.outcome is not Outcome.OK:
            reason = report.detail or report.outcome.value
            yield warn(f"the agent does not read it: {reason}", KERNEL_LOG_REMEDY)
        elif report is not None:
            yield ok("the agent reads it")
        return
    if not path.exists():
        yield warn(f"{path} is not there: XIDs come only from the driver", "pass it into the container")
    elif node.unit is not None and HANDED in read_procfs(node.unit):
        yield ok("systemd opens it for the agent")
    elif not node.user.overrides and (_is_restricted(node) or not node.user.may(READ, path.stat())):
        yield warn(f"{node.user.name} may not read {path}: XIDs come only from the driver", KERNEL_LOG_REMEDY)
    else:
        yield ok(f"{node.user.name} may read {path}")


def _is_restricted(node: DoctorNode) -> bool:
    """Return whether it takes CAP_SYSLOG (kernel.dmesg_restrict, Documentation/admin-guide/sysctl/kernel.rst)."""
    return text_if_possible(node.procfs / "sys/kernel/dmesg_restrict", 8) == "1"
