"""Power and energy that only root may read: IPMI through the broker, RAPL by the udev rule."""

from __future__ import annotations

import shutil
from pathlib import Path

from inside.checks import NotHereError, check
from inside.tools import CheckError, alerts, journal, missing, one, sh, show, total, until

RULE = Path("/etc/udev/rules.d/70-coldplate.rules")
TRIAL = Path("/run/udev/rules.d/70-coldplate-trial.rules")


@check("ipmi")
def power_by_the_broker() -> str:
    if not Path("/dev/ipmi0").exists():
        raise NotHereError("no IPMI device")
    about = sh("stat", "--format=%U %G %a", "/dev/ipmi0")
    if about != "root coldplate-broker 660":
        raise CheckError(f"/dev/ipmi0: {about}")
    took = until("the power", lambda: one("coldplate_node_power_watts", source="ipmi"), 60)
    watts = total("coldplate_node_power_watts", source="ipmi")
    if watts != 7350:
        raise CheckError(f"{watts} W, and the controller says 7350")
    memory = int(show("MemoryCurrent", "coldplate-broker.service")) / 2**20
    return f"/dev/ipmi0 ({about}): {watts:.0f} W as the controller says, after {took:.1f} s (broker: {memory:.1f} MiB)"


@check("ipmi without the broker")
def a_controller_that_may_not_be_asked_is_said() -> str:
    if not Path("/dev/ipmi0").exists():
        raise NotHereError("no IPMI device")
    sh("systemctl", "stop", "coldplate-broker.socket", "coldplate-broker.service")
    until("the gap", lambda: missing().get("coldplate_node_power_watts") == "denied", 60)
    before = journal().count("DCMI power reading: /dev/ipmi0: ")
    sh("systemctl", "disable", "--quiet", "coldplate-broker.socket")
    sh("systemctl", "restart", "coldplate.service")
    until("the gap", lambda: missing().get("coldplate_node_power_watts") == "denied", 60)
    told = [line for line in journal().splitlines() if "DCMI power reading: /dev/ipmi0: " in line]
    told = told[before:]
    until("the alert is on its way", lambda: alerts("MetricsMissing"), 60)
    sh("systemctl", "enable", "--quiet", "--now", "coldplate-broker.socket")
    sh("systemctl", "restart", "coldplate.service")
    until("the power", lambda: one("coldplate_node_power_watts", source="ipmi"), 60)
    if len(told) != 1 or "coldplate-broker.socket" not in told[0]:
        raise CheckError(f"{told}")
    return (
        "denied, with the device and the remedy, once in the log; MetricsMissing is pending, for an estimate stands in"
    )


@check("rapl")
def the_rule_gives_the_group_the_counters() -> str:
    if shutil.which("udevadm") is None or not Path("/run/udev/control").exists():
        raise NotHereError("udev does not run here")
    said = sh("udevadm", "verify", str(RULE))
    if any(Path("/sys/class/powercap").glob("intel-rapl:*")):
        energy = next(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj"))
        about = sh("stat", "--format=%U %G %a", str(energy))
        if about != "root coldplate 440":
            raise CheckError(f"{energy}: {about}")
        return f"{energy}: {about}"
    # No processor with RAPL is emulated: the same rule, for an attribute of a network device.
    text = RULE.read_text().replace(
        'SUBSYSTEM=="powercap", KERNEL=="intel-rapl:*"', 'SUBSYSTEM=="net", KERNEL=="rapl*"'
    )
    TRIAL.parent.mkdir(parents=True, exist_ok=True)
    TRIAL.write_text(text.replace("energy_uj", "mtu"))
    sh("udevadm", "control", "--reload")
    sh("ip", "link", "add", "rapl0", "type", "dummy")
    attribute = "/sys/class/net/rapl0/mtu"
    until("the rule", lambda: sh("stat", "--format=%U %G %a", attribute) == "root coldplate 440")
    sh("ip", "link", "delete", "rapl0")
    TRIAL.unlink()
    return (
        f"{said.splitlines()[-1]}; no RAPL here, but the same rule made a network device's attribute root coldplate 440"
    )
