"""The minor numbers of the GPUs' device files (/dev/nvidia3), which other programs use as names.

The kernel module lists them in /proc/driver/nvidia/gpus/BUS/information, beside the UUID. They may differ from the
indices of NVML, which follow the PCI bus.
"""

from __future__ import annotations

from agent.backends.jobs.job_files import Patient

FOLDER = "driver/nvidia/gpus"
INFORMATION = 4096
"""Most bytes read of a file."""
MOST = 256


def minors(procfs: str, read: Patient) -> dict[int, str]:
    """UUIDs by minor number, except GPUs whose file cannot be read or names no UUID yet."""
    found: dict[int, str] = {}
    try:
        folders = read.names(f"{procfs}/{FOLDER}").folders[:MOST]
    except OSError:
        return found
    for folder in folders:
        try:
            content = read(f"{procfs}/{FOLDER}/{folder}/information", INFORMATION)
        except OSError:
            continue
        known = facts(content)
        number = known.get("Device Minor", "")
        if number.isascii() and number.isdigit() and len(number) < 9 and "GPU UUID" in known:
            found[int(number)] = known["GPU UUID"]
    return found


def facts(content: bytes) -> dict[str, str]:
    """The lines `Name: value` of such a file."""
    lines = (line.partition(":") for line in content.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}
