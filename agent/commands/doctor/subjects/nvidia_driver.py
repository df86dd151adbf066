"""NVIDIA's kernel module and library: there, of one version, and for every GPU on the bus.

Neither is loaded or opened here: a driver that hangs would hold doctor, too. The module tells its version in
/proc/driver/nvidia/version, the library in its file name, and the loader's cache (ld.so.cache(5)) where it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from agent.backends.sysfs import list_names, text
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode

RANK = 30
DRIVER = Diagnoses("driver")
LIBRARY = "libnvidia-ml.so.1"
FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
           "usr/lib/wsl/lib")  # fmt: skip
"""Where distributions, containers and WSL have it, for roots without a cache of the loader."""
CACHE = 1 << 24
VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]+)")
_IN_CACHE = re.compile(rb"(/[^\0]{1,4096}/libnvidia-ml\.so\.1)\0")
_IN_NAME = re.compile(r"libnvidia-ml\.so\.([0-9]+(?:\.[0-9]+)+)")


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """The module with its GPUs, the library, and Python's binding to it."""
    if not node.has_driver:
        why = f"backends.devices is {node.config.backends.devices}"
        yield DRIVER.said("configuration", DRIVER.ok(f"not needed: {why}"))
        return
    yield DRIVER.check(node.procfs / "driver/nvidia/version", _module, node)
    yield DRIVER.check(LIBRARY, _library, node)
    yield DRIVER.check("pynvml", _binding)
    yield DRIVER.check(node.root / "run/nvidia-persistenced", _persistence, node)


def module_version(node: ExaminedNode) -> str:
    """The version of the kernel module; empty where none is loaded. Raises OSError."""
    try:
        said = text(node.procfs / "driver/nvidia/version")
    except FileNotFoundError:
        return ""
    match = VERSION.search(said)
    return match[1] if match else "of unknown number"


def _module(node: ExaminedNode) -> Iterator[Diagnosis]:
    version, gpus, read = module_version(node), node.gpus, _read_by_agent(node)
    if not version and read:
        yield DRIVER.ok(f"no /proc/driver/nvidia, but the agent reads {read} GPUs")
    elif not version and gpus:
        remedy = "modprobe nvidia; if that fails, dmesg -T | grep -i nvrm tells why"
        yield DRIVER.fail(f"{len(gpus)} NVIDIA GPUs on the PCI bus, and the kernel module nvidia is not loaded", remedy)
    elif not version:
        remedy = "install the driver, or set backends: {devices: none} on nodes without GPUs"
        tell = DRIVER.fail if node.config.backends.devices == "nvml" else DRIVER.warn
        yield tell("no NVIDIA GPU on the PCI bus, and no driver", remedy)
    else:
        folder = node.procfs / "driver/nvidia/gpus"
        known = len(list_names(folder)) if folder.is_dir() else 0
        if gpus and known < len(gpus):
            remedy = "dmesg -T | grep -iE 'nvrm|xid|fallen off' tells which one failed; then reset or reseat it"
            yield DRIVER.fail(f"module {version} took {known} of the {len(gpus)} GPUs on the PCI bus", remedy)
        else:
            yield DRIVER.ok(f"kernel module {version} with {known} GPUs")


def _read_by_agent(node: ExaminedNode) -> int:
    """GPUs that the running agent reads: a driver in another kernel (WSL) shows nothing in /proc."""
    view = node.agent
    return 0 if view is None or view.is_synthetic else view.values("coldplate_gpu_up").count(1.0)


def _library(node: ExaminedNode) -> Iterator[Diagnosis]:
    path, module = find_library(node.root), module_version(node)
    if path is None:
        if module or node.gpus:
            remedy = "install the driver's libraries (Debian: libnvidia-ml1), then ldconfig"
            yield DRIVER.fail(f"{LIBRARY} is nowhere", remedy)
        return
    match = _IN_NAME.search(os.path.realpath(path))
    version = match[1] if match else ""
    if module and version and module[0].isdigit() and version != module:
        remedy = (
            "reboot, or without GPU processes: coldplate pause --for 30m; systemctl stop nvidia-persistenced; "
            "rmmod and modprobe nvidia"
        )
        yield DRIVER.fail(f"{path} is {version}, and the loaded module is {module}: NVML refuses to work", remedy)
    else:
        yield DRIVER.ok(f"{path} {version}".rstrip())


def find_library(root: Path) -> Path | None:
    """Where the loader finds the library, by its cache or in the usual folders. Raises OSError."""
    cache = root / "etc/ld.so.cache"
    places = []
    if cache.is_file():
        with cache.open("rb") as file:
            places = [
                root / each.decode("utf-8", "replace").lstrip("/") for each in _IN_CACHE.findall(file.read(CACHE))
            ]
    places += [root / folder / LIBRARY for folder in FOLDERS]
    return next((path for path in places if path.exists()), None)


def _binding() -> Iterator[Diagnosis]:
    if find_spec("pynvml") is None:
        yield DRIVER.fail("Python's module pynvml is missing", "make install; or pip install nvidia-ml-py")


def _persistence(node: ExaminedNode) -> Iterator[Diagnosis]:
    if module_version(node) and not any(each.name.startswith("nvidia-persiste") for each in node.processes):
        yield DRIVER.warn(
            "nvidia-persistenced does not run: GPUs sleep between users, and the agent may find no device nodes",
            "systemctl enable --now nvidia-persistenced",
        )
