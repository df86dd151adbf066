"""What the agent says of a GPU that is lost, and of all GPUs when they are well."""

from __future__ import annotations

from inside.tools import CheckError, alerts, series


def all_up() -> bool:
    return sum(value for _, value in series("coldplate_gpu_up")) == 8


def lost() -> dict[str, str]:
    """The only alert GpuLost. Raises CheckError where it does not fire."""
    found = alerts("GpuLost")
    if len(found) != 1 or found[0]["state"] != "firing":
        raise CheckError(f"GpuLost: {found}")
    return found[0]
