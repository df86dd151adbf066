"""Without the Debian package at last: what a removal keeps, and that a purge keeps nothing."""

from __future__ import annotations

from pathlib import Path

from inside.packaged import PACKAGE, dpkg, stands, state
from inside.tools import CONFIG, CheckError, check, configure, main_pid, ready, sh, total, until

PLACES = ("/etc", "/opt", "/usr/bin", "/usr/lib/systemd", "/usr/lib/sysusers.d", "/usr/lib/udev", "/usr/lib/tmpfiles.d",
          "/usr/share/man", "/usr/share/doc", "/usr/share/bash-completion", "/usr/share/zsh",
          "/var/lib/coldplate", "/var/lib/private", "/var/lib/systemd", "/run/systemd")  # fmt: skip


def left() -> list[str]:
    return [str(path) for place in PLACES for path in Path(place).rglob("*coldplate*")]


@check("package removal")
def removal_keeps_configuration_and_state() -> str:
    configure("sampling: {slow: 7s}\n")
    inventory = state()
    dpkg("--remove", "coldplate")
    known = sh("systemctl", "list-units", "--plain", "--no-legend", "--state=active,failed", "coldplate*")
    if known or sh("pgrep", "-u", "coldplate", check=False) or Path("/opt/coldplate").exists():
        raise CheckError(f"left: {known} {left()}")
    if not CONFIG.exists() or not inventory.exists():
        raise CheckError("configuration or state went along")
    dpkg("--install", str(PACKAGE))
    ready()
    until("the configuration", lambda: total("coldplate_sampling_interval_seconds", lane="slow") == 7.0)
    return f"nothing runs, configuration and state stay; installed again it runs with them (process {main_pid()})"


@check("package purge")
def a_purge_keeps_nothing() -> str:
    dpkg("--purge", "coldplate")
    users = [each for each in ("coldplate", "coldplate-broker") if sh("getent", "passwd", each, check=False)]
    found = left()
    if found or users or sh("pgrep", "-f", "/opt/coldplate", check=False):
        raise CheckError(f"left: {found}, users {users}")
    gone = sh("dpkg-query", "--show", "coldplate", check=False)
    if "no packages found" not in gone:
        raise CheckError(f"{stands()}")
    return "no file, no user, no process"
