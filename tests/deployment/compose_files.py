"""packaging/compose as data: its services, and where the files that a container mounts are in the checkout."""

from pathlib import Path, PurePosixPath
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "packaging" / "compose"


def services() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]


def mounts(service: dict[str, Any]) -> dict[PurePosixPath, Path]:
    """Return the files and folders that a service mounts: the path in the container, and the path in the checkout."""
    found = {}
    for each in service.get("volumes", ()):
        source, target, mode = each.split(":")
        assert mode == "ro", each
        found[PurePosixPath(target)] = (COMPOSE / source).resolve()
    return found


def in_checkout(service: dict[str, Any], path: str) -> Path:
    """Return where a path of a container is in the checkout. Raises KeyError if it is not below a mount."""
    inside = PurePosixPath(path)
    for target, source in mounts(service).items():
        if inside == target or target in inside.parents:
            return source / inside.relative_to(target)
    raise KeyError(path)
