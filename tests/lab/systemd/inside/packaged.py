"""The Debian package on a running system: it starts the service, and upgrades keep what is there."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from inside.tools import (
    CONFIG,
    UNIT,
    CheckError,
    active,
    check,
    command,
    configure,
    main_pid,
    ready,
    series,
    sh,
    total,
    until,
)

PACKAGE = Path("/usr/src/coldplate.deb")
POLICY = Path("/usr/sbin/policy-rc.d")
COMPILED = Path("/opt/coldplate/lib/common/agent/__pycache__")
STATE = "inventory.state"


def dpkg(*arguments: str) -> float:
    """Run dpkg; how many seconds it took."""
    began = time.monotonic()
    sh("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *arguments)
    return time.monotonic() - began


def repacked(version: str) -> Path:
    """The package once more, as another version."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        sh("dpkg-deb", "--raw-extract", str(PACKAGE), f"{folder}/tree")
        control = Path(folder, "tree", "DEBIAN", "control")
        control.write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", control.read_text()))
        out = Path("/var/tmp", f"coldplate-{version}.deb")
        sh("dpkg-deb", "-Znone", "--build", f"{folder}/tree", str(out))
    return out


def stands() -> str:
    return sh("dpkg-query", "--show", "--showformat=${Status} ${Version}", "coldplate")


def state() -> Path:
    """Where the agent remembers its GPUs; with a dynamic user systemd keeps it elsewhere. Raises CheckError."""
    for each in ("/var/lib/private", "/var/lib"):
        if Path(each, "coldplate", STATE).exists():
            return Path(each, "coldplate", STATE)
    raise CheckError(f"there is no {STATE}")


@check("package installs")
def installs() -> str:
    command()
    POLICY.unlink(missing_ok=True)
    took = dpkg("--install", str(PACKAGE))
    if active() != "active":
        raise CheckError(f"{UNIT} is {active()} when dpkg is through")
    after = until("8 GPUs", lambda: len(series("coldplate_gpu_up")) == 8)
    enabled = sh("systemctl", "is-enabled", UNIT, "coldplate-broker.socket", "coldplate-kubelet.socket").split()
    if enabled != ["enabled"] * 3 or not list(COMPILED.glob("cli.*.pyc")):
        raise CheckError(f"enabled: {enabled}; compiled: {list(COMPILED.glob('cli.*'))}")
    return f"in {took:.1f} s, and a page with 8 GPUs {after:.1f} s later"


@check("package upgrade")
def upgrade_keeps_what_is_there() -> str:
    until("its state", state)
    configure(CONFIG.read_text().replace("#slow: 15s", "slow: 5s"))
    kept, pid = CONFIG.read_text(), main_pid()
    sh("systemctl", "disable", "--quiet", "coldplate-kubelet.socket")
    took = dpkg("--install", str(repacked("9.1")))
    ready()
    if main_pid() == pid or CONFIG.read_text() != kept or stands() != "install ok installed 9.1":
        raise CheckError(
            f"process {pid}, now {main_pid()}; {stands()}; the configuration is {CONFIG.read_text()[-200:]}"
        )
    until("its expectation", lambda: total("coldplate_gpus_expected") == 8)
    until("the configuration", lambda: total("coldplate_sampling_interval_seconds", sampling_lane="slow") == 5.0)
    disabled = sh("systemctl", "is-enabled", "coldplate-kubelet.socket", check=False)
    sh("systemctl", "enable", "--quiet", "coldplate-kubelet.socket")
    if disabled != "disabled":
        raise CheckError(f"what was disabled is {disabled} after an upgrade")
    return f"in {took:.1f} s: another process, the same state and configuration, and what was disabled stays so"


@check("package upgrade under policy-rc.d")
def policy_is_respected() -> str:
    pid = main_pid()
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        dpkg("--install", str(repacked("9.2")))
    finally:
        POLICY.unlink()
    if main_pid() != pid:
        raise CheckError("it was restarted where policy-rc.d forbids it")
    return "not restarted"


@check("package removal")
def removal_stops_all_and_keeps_configuration_and_state() -> str:
    """What else it leaves, and that a purge leaves nothing, is tried in bare roots."""
    kept, inventory = CONFIG.read_text(), state()
    dpkg("--remove", "coldplate")
    known = sh("systemctl", "list-units", "--plain", "--no-legend", "--state=active,failed", "coldplate*")
    if known or sh("pgrep", "-u", "coldplate", check=False) or CONFIG.read_text() != kept or not inventory.exists():
        raise CheckError(f"left: {known}; the configuration is {CONFIG.read_text()[-200:]}")
    dpkg("--install", str(PACKAGE))
    ready()
    until("the configuration", lambda: total("coldplate_sampling_interval_seconds", sampling_lane="slow") == 5.0)
    return f"nothing runs, configuration and state stay; installed again it runs with them (process {main_pid()})"


@check("python upgrade")
def another_python_is_taken() -> str:
    """What dpkg does when python3 is unpacked; that it is another one shows in that nothing is compiled for it."""

    def triggered() -> None:
        sh("dpkg-trigger", "--by-package=python3-minimal", "--no-await", "/usr/bin/python3")
        dpkg("--configure", "--pending")

    pid = main_pid()
    triggered()
    if main_pid() != pid:
        raise CheckError("restarted for a Python of the same version")
    for each in COMPILED.glob("cli.*.pyc"):
        each.rename(each.with_name("cli.cpython-39.pyc"))
    triggered()
    ready()
    names = sorted(each.name for each in COMPILED.glob("cli.*.pyc"))
    if main_pid() == pid or len(names) != 1 or names[0] == "cli.cpython-39.pyc":
        raise CheckError(f"process {pid}, now {main_pid()}; compiled: {names}")
    return f"compiled for it ({names[0]}), what was compiled for another is gone, and it runs anew"
