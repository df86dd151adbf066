"""The real ethtool asks the stand-in kernel what the backend asks it, and both say the same."""

import errno
import json
import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.backends.optics import OpticsBackend
from agent.backends.optics.netlink import connect_netlink, resolve_family
from agent.model import Instant, Lane, Reason
from tests.fakes.netlink.redirected import Redirected, build
from tests.optics.conftest import FAMILY, FEC_GET, REPLIES, STATS_GET, Ports, fec, group, refused, u64s
from tests.optics.stand_in_module import StandInModule, osfp, qsfp28
from tests.optics.test_transceivers import plug
from tests.servers import need

LEFT_OUT = "NOTHING shows here that ports and modules are shown as ethtool shows them"
DEVICE = "eth0"
COUNTERS = {
    "corrected_blocks": "corrected_blocks",
    "uncorrectable_blocks": "uncorrectable_blocks",
    "corrected_bits": "corrected_bit_errors",
}
"""ethtool's names of counters, and ours."""
LIMITS = {
    "Module temperature": "temperature_limit_celsius",
    "Laser bias current": "transmit_bias_limit_amperes",
    "Laser output power": "transmit_power_limit_watts",
    "Laser rx power": "receive_power_limit_watts",
}
FIXED = {"Module temperature": f"temperature_celsius {DEVICE}", "Module voltage": f"supply_volts {DEVICE}"}
UPPER = ("Module temperature", "Laser bias current")
UNITS = {"degrees": 1.0, "V": 1.0, "mA": 1e-3, "mW": 1e-3}

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(os.environ.get("CC", "cc"), left_out=f"{LEFT_OUT} (apt-get install gcc)")
    return build(tmp_path_factory.mktemp("redirect"))


@pytest.fixture
def ask(ports: Ports, library: Path, tmp_path: Path) -> Iterator[Ask]:
    """Runs ethtool: the stand-in answers what it asks about DEVICE, the machine's kernel the rest: names."""
    program = need("ethtool", left_out=LEFT_OUT)
    try:
        resolve_family(connect_netlink, "ethtool")
    except OSError as error:
        pytest.skip(f"this machine offers no ethtool netlink ({error}): {LEFT_OUT}")

    def reply(question: bytes) -> list[bytes]:
        length, _, flags = struct.unpack_from("=IHH", question)
        if question[16] not in REPLIES:
            return [refused(errno.EOPNOTSUPP, question)]
        return ports.kernel.reply(struct.pack("=IHHII", length, FAMILY, flags, 1, 0) + question[16:])

    with closing(Redirected(library, tmp_path / "netlink", DEVICE, reply)) as preloaded:

        def run(*arguments: str) -> str:
            done = preloaded.run(program, *arguments)
            assert done.returncode == 0, (arguments, done.stdout, done.stderr)
            return done.stdout

        yield run


@pytest.mark.parametrize(("mode", "active"), [(50, "RS"), (51, "BaseR"), (74, "LLRS")])
def test_the_code_and_its_counters_are_those_of_show_fec(ports: Ports, ask: Ask, mode: int, active: str) -> None:
    rng = random.Random(mode)
    counts = [[rng.randrange(2**40) for _ in range(1 + lanes)] for lanes in (4, 2, 0)]
    ports.healthy(DEVICE)
    ports.kernel.answers[DEVICE, FEC_GET] = fec(
        mode, *(u64s(2 + place, *values) for place, values in enumerate(counts))
    )
    shown = ports.read()
    (told,) = json.loads(ask("--json", "-I", "--show-fec", DEVICE))
    assert told["active"] == [active]
    assert shown[f"fec_info {DEVICE} {active.lower()}"] == 1
    for place, (name, ours) in enumerate(COUNTERS.items()):
        said = told["statistics"][name]
        assert [said["total"], *said.get("lanes", [])] == counts[place]
        assert shown[f"fec_{ours}_total {DEVICE}"] == said["total"]
        lanes = [value for key, value in shown.items() if key.startswith(f"fec_lane_{ours}_total")]
        assert lanes == said.get("lanes", [])


def test_statistics_rate_and_link_down_events_are_those_that_ethtool_tells(ports: Ports, ask: Ask) -> None:
    ports.healthy(DEVICE)
    ports.kernel.answers[DEVICE, STATS_GET] = group(0, _0=12) + group(1, _3=10**9, _4=7)
    (told,) = json.loads(ask("--json", "-S", DEVICE, "--groups", "eth-phy", "eth-mac"))
    shown = ports.read()
    assert shown[f"symbol_errors_total {DEVICE}"] == told["eth-phy"]["SymbolErrorDuringCarrier"] == 12
    assert shown[f"fcs_errors_total {DEVICE}"] == told["eth-mac"]["FrameCheckSequenceErrors"] == 7
    text = ask("-I", DEVICE)
    assert "Speed: 400000Mb/s" in text
    assert shown[f"rate_bytes_per_second {DEVICE}"] == 400_000e6 / 8
    if events := re.search(r"Link Down Events: (\d+)", text):  # newer than 6.1
        assert shown[f"link_down_events_total {DEVICE}"] == int(events[1])


def scattered(module: StandInModule, rng: random.Random) -> StandInModule:
    """Any values, and limits in their order; its currents are in single steps."""
    is_cmis = (0, 0x11) in module.halves
    values, limits = (0x11, 2) if is_cmis else (0, 3)
    module.words(0, 14 if is_cmis else 22, [rng.randrange(-40 * 256, 100 * 256) or 1])
    module.words(0, 16 if is_cmis else 26, [rng.randrange(30_000, 36_000)])
    lanes = 8 if is_cmis else 4
    for at in (154, 170, 186) if is_cmis else (34, 42, 50):
        module.words(values, at, [rng.randrange(65_536) for _ in range(lanes)])
    for at in (128, 176, 184, 192):
        low, warning_low, warning, high = sorted(
            rng.sample(range(-50 * 256, 120 * 256) if at == 128 else range(65_535), 4)
        )
        module.words(limits, at, [high, low, warning, warning_low])
    if is_cmis:
        module.set(1, 160, b"\x07")
    return module


def numbers_in(text: str) -> dict[str, float]:
    """What ethtool says with a unit, in base units."""
    found = re.findall(r"(?m)^\s*([^:]+?)\s*: (-?[\d.]+) (degrees|V|mA|mW)\b", text)
    return {
        re.sub(r"\s+|(?=\()", " ", key).replace("  ", " "): float(number) * UNITS[unit] for key, number, unit in found
    }


def ours_of(key: str) -> str | None:
    """Our name of what ethtool calls `key`; None for what is not shown, like the limits on the other side."""
    if key in FIXED:
        return FIXED[key]
    if lane := re.search(r"\(Channel (\d+)\)$", key):
        what = "bias_amperes" if "bias" in key else "power_watts"
        side = "receive" if key.startswith(("Receiver", "Rcvr")) else "transmit"
        return f"lane_{side}_{what} {DEVICE} {lane[1]}"
    limit = re.fullmatch(r"(.+) (high|low) (alarm|warning) threshold", key)
    if limit is None or limit[1] not in LIMITS or limit[2] != ("high" if limit[1] in UPPER else "low"):
        return None
    return f"{LIMITS[limit[1]]} {DEVICE} {limit[3]}"


def compared(shown: dict[str, float], told: dict[str, float]) -> int:
    """How many values of ethtool's are the same in ours."""
    found = {key: ours for key in told if (ours := ours_of(key)) is not None}
    for key, ours in found.items():
        step = 0.0051 if "temperature" in key else 1e-9  # ethtool rounds temperatures to hundredths, and no other
        assert shown[ours] == pytest.approx(told[key], abs=step), (key, ours)
    return len(found)


@pytest.mark.parametrize(("make", "lanes"), [(qsfp28, 4), (osfp, 8)])
def test_a_module_shows_what_ethtool_shows_of_it(
    ports: Ports, ask: Ask, make: Callable[[bytes], StandInModule], lanes: int
) -> None:
    rng = random.Random(lanes)
    for number in range(6):
        plug(ports, scattered(make(b"SN%d" % number), rng))
        shown, text = ports.modules(), ask("-m", DEVICE)
        assert compared(shown, numbers_in(text)) == 2 + 3 * lanes + 2 * len(LIMITS)
        info = next(key for key in shown if key.startswith("info"))
        for what in ("name", "PN", "SN"):
            said = re.search(rf"(?m)^\s*Vendor {what}\s*: (.*)$", text)
            assert said is not None
            assert said[1].strip() in info


# This machine's own kernel: whatever it offers, it is understood.
def test_a_port_that_is_not_there_is_gone_or_nothing_is_offered(tmp_path: Path) -> None:
    """The kernel's own answers are understood: it knows the question, and not the port."""
    folder = tmp_path / "class" / "net" / "coldplate-none"
    (folder / "device").mkdir(parents=True)
    (folder / "type").write_text("1\n")
    try:
        resolve_family(connect_netlink, "ethtool")
    except OSError as error:
        pytest.skip(f"this machine offers no ethtool netlink: {error}")
    backend = OpticsBackend(tmp_path)
    try:
        sample = backend.read(Lane.SLOW, Instant(1.0, 1e9))
    finally:
        backend.close()
    assert not sample.readings
    by_row = {gap.metric.name: gap.reason for gap in sample.gaps}
    assert by_row["coldplate_ethernet_rate_bytes_per_second"] is Reason.LOST, "LINKMODES_GET is as old as the family"
    assert set(by_row.values()) <= {Reason.LOST, Reason.UNSUPPORTED}, "an older kernel does not know the others"
