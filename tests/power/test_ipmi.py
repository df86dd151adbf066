"""DCMI power readings: the layout, the refusals, and the kernel's IPMI device (never a real controller)."""

import ctypes
import errno
import logging
import os
from pathlib import Path

import pytest

from agent.backends.power.ipmi import IpmiPower, open_transport
from agent.backends.protocol import AbsentError, DeviceError
from agent.broker import ipmidev
from agent.broker.answering import Broker, serve
from agent.broker.asking import BrokerClient
from agent.broker.ipmidev import IPMI_REQUEST, IPMI_RESPONSE, DeviceTransport
from agent.broker.questions import IpmiDevice
from agent.model import Reason
from tests.broker.conftest import IDLE, Bmc, in_thread, listening
from tests.power.conftest import Dcmi, fault, response
from tests.power.test_sysfs import without_root


def openbmc(watts: int) -> bytes:
    """As OpenBMC answered before it had a state: the current power four times, and zeros."""
    return b"\x00\xdc" + 4 * watts.to_bytes(2, "little") + bytes(9)


@pytest.mark.parametrize("answer", [response(360), response(360, state=0x02), openbmc(360)])
def test_a_reading_counts_where_openbmc_has_its_state_in_another_place(answer: bytes) -> None:
    assert IpmiPower(Dcmi(answer)).watts() == 360.0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\xc1", Reason.UNSUPPORTED),
        (b"\xc0", Reason.TIMEOUT),
        (b"\xd4", Reason.DENIED),
        (b"\xff", Reason.TIMEOUT),
        (b"\xcc", Reason.UNSUPPORTED),
        (b"", Reason.MALFORMED),
        (response(100)[:18], Reason.MALFORMED),
        (b"\x00\xdd" + response(100)[2:], Reason.MALFORMED),
        (response(100, state=0), Reason.UNSUPPORTED),
        (response(100, 100, 100, 100, state=0), Reason.UNSUPPORTED),
        (openbmc(0), Reason.UNSUPPORTED),
        (openbmc(100)[:4] + b"\0" + openbmc(100)[5:], Reason.UNSUPPORTED),
        (response(0xFFFF), Reason.IMPLAUSIBLE),
        (TimeoutError(110, "timed out"), Reason.TIMEOUT),
        (OSError(5, "Input/output error"), Reason.LOST),
        (PermissionError(13, "Permission denied", "/dev/ipmi0"), Reason.DENIED),
    ],
)
def test_what_is_not_a_reading_has_its_reason(answer: bytes | OSError, reason: Reason) -> None:
    told = fault(IpmiPower(Dcmi(answer)))
    assert told.reason is reason
    assert told.detail


def test_the_device_is_reopened_after_an_error_and_kept_otherwise() -> None:
    dcmi = Dcmi(1)
    source = IpmiPower(dcmi)
    source.watts()
    dcmi.answer = OSError(5, "Input/output error")
    with pytest.raises(DeviceError):
        source.watts()
    dcmi.answer = response(1)
    for _ in range(2):
        source.watts()
    assert (dcmi.opened, dcmi.closed) == (2, 1)


def test_a_node_without_the_device_is_absent_not_broken_and_asks_no_broker(read) -> None:
    def none() -> Dcmi:
        raise AbsentError("no IPMI device: /dev/ipmi0")

    with pytest.raises(AbsentError, match="/dev/ipmi0"):
        read(["ipmi"], ipmi=none).sample(0.0)
    with pytest.raises(AbsentError):
        open_transport(lambda: None, closed, BrokerClient("/nowhere"))


# Printed by a C program from linux/ipmi.h on x86-64; arm64 has the same layout.
@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of a 64-bit kernel interface")
def test_structures_and_call_numbers_are_those_of_the_kernel_header() -> None:
    assert (IPMI_REQUEST.size, IPMI_RESPONSE.size, ipmidev.ADDRESS.size) == (40, 48, 8)
    request = IPMI_REQUEST.pack(1, 2, 3, 4, 5, 6, 7)
    assert [request[at] for at in (0, 8, 16, 24, 25, 26, 32)] == [1, 2, 3, 4, 5, 6, 7]
    received = IPMI_RESPONSE.pack(1, 2, 3, 4, 5, 6, 7, 8)
    assert [received[at] for at in (0, 8, 16, 24, 32, 33, 34, 40)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (ipmidev.SEND_COMMAND, ipmidev.RECEIVE_MSG_TRUNC) == (0x8028690D, 0xC030690B)


class FakeKernel:
    """The two calls of the IPMI device, on the memory that they are given."""

    def __init__(self, stale: int = 0, answers: bool = True) -> None:
        self.stale = stale
        self.answers = answers
        self.sent: list[tuple[int, int, bytes]] = []
        self.msgid = 0

    def ioctl(self, file: int, number: int, argument: bytearray) -> None:
        if number == ipmidev.SEND_COMMAND:
            address, length, self.msgid, netfn, command, size, data = IPMI_REQUEST.unpack(argument)
            assert ctypes.string_at(address, length) == b"\x0c\0\0\0\x0f\0\0\0"
            self.sent.append((netfn, command, ctypes.string_at(data, size)))
            return
        assert number == ipmidev.RECEIVE_MSG_TRUNC
        late, self.stale = self.stale > 0, max(0, self.stale - 1)
        body = response(1 if late else 0x1234, 0x0102, 0xFFFF, 0x0304)
        *place, _, netfn, command, size, data = IPMI_RESPONSE.unpack(argument)[1:]
        assert size == 272
        ctypes.memmove(data, body, len(body))
        msgid = self.msgid - 1 if late else self.msgid
        argument[:] = IPMI_RESPONSE.pack(ipmidev.RESPONSE, *place, msgid, netfn, command, len(body), data)

    def wait(self, file: int, timeout: float) -> bool:
        return self.answers


def transport(kernel: FakeKernel, tmp_path: Path) -> DeviceTransport:
    device = tmp_path / "ipmi0"
    device.touch()
    return DeviceTransport(str(device), kernel.ioctl, kernel.wait)


def test_one_fixed_request_gives_the_power_and_a_late_answer_is_not_used(tmp_path: Path) -> None:
    kernel = FakeKernel(stale=2)
    source = IpmiPower(lambda: transport(kernel, tmp_path))
    assert source.watts() == 0x1234
    assert kernel.sent == [(0x2C, 0x02, b"\xdc\x01\x00\x00")]
    source.close()
    source.close()


@pytest.mark.parametrize("kernel", [FakeKernel(answers=False), FakeKernel(stale=1000)])
def test_a_controller_that_does_not_answer_is_a_timeout(kernel: FakeKernel, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no answer within") as told:
        IpmiPower(lambda: transport(kernel, tmp_path)).watts()
    assert told.value.reason is Reason.TIMEOUT


# The management controller where only the broker may ask it, and what is said of what may not be read.
IPMI = 'power_watts{source="ipmi"}'


def closed(path: str) -> IpmiDevice:
    """The device as the unit's DevicePolicy= shows it."""
    raise PermissionError(errno.EPERM, "Operation not permitted", path)


def by(broker: BrokerClient) -> IpmiPower:
    return IpmiPower(lambda: open_transport(lambda: "/dev/ipmi0", closed, broker))


def served(tmp_path: Path, bmc: Bmc):
    ticks = iter(range(1000))
    broker = Broker(lambda: float(next(ticks)), "/proc", lambda: "/dev/ipmi0", bmc.open)
    path = tmp_path / "broker.sock"
    return in_thread(listening(path), lambda listener: serve(listener, broker, frozenset({os.getuid()}), IDLE))


def test_the_broker_is_asked_where_the_device_is_closed(tmp_path: Path) -> None:
    bmc = Bmc(response(7350))
    with served(tmp_path, bmc):
        source = by(BrokerClient(str(tmp_path / "broker.sock")))
        assert [source.watts(), source.watts()] == [7350.0, 7350.0]
    assert bmc.opened == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (TimeoutError(errno.ETIMEDOUT, "no answer"), Reason.TIMEOUT),
        (OSError(errno.EMFILE, "Too many open files"), Reason.DENIED),
        (b"\xc1", Reason.UNSUPPORTED),
        (b"garbage", Reason.UNSUPPORTED),
        (b"\x00" * 4000, Reason.MALFORMED),
    ],
)
def test_what_the_broker_says_is_trusted_no_more_than_the_device(
    tmp_path: Path, answer: bytes | OSError, reason: Reason
) -> None:
    with served(tmp_path, Bmc(answer)):
        assert fault(by(BrokerClient(str(tmp_path / "broker.sock")))).reason is reason


def test_the_broker_may_be_missing_malformed_or_lost(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"

    def nonsense(listener) -> None:
        listener.settimeout(IDLE)
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.send(b"7000 W")

    told = fault(by(BrokerClient(str(path))))
    assert told.reason is Reason.DENIED
    assert "/dev/ipmi0: Operation not permitted" in told.detail
    assert "systemctl enable --now coldplate-broker.socket" in told.detail
    with in_thread(listening(path), nonsense):
        assert fault(by(BrokerClient(str(path)))).reason is Reason.MALFORMED
    assert fault(by(BrokerClient(str(path)))).reason is Reason.LOST


def test_a_denied_controller_is_logged_once_and_its_recovery_once(read, tmp_path: Path, caplog) -> None:
    """No account is locked by asking whether a file may be opened, unlike a refused login."""
    path = tmp_path / "broker.sock"
    reader = read(["ipmi"], ipmi=lambda: open_transport(lambda: "/dev/ipmi0", closed, BrokerClient(str(path))))
    with caplog.at_level(logging.INFO, logger="coldplate.power"):
        for second in range(1000):
            (gap,) = reader.gaps(float(second))
        assert gap.reason is Reason.DENIED
        assert [record.getMessage() for record in caplog.records] == [gap.detail]
        with served(tmp_path, Bmc(response(5000))):
            assert reader.values(1029.0) == {IPMI: 5000.0}
            reader.values(1030.0)
    assert [record.getMessage() for record in caplog.records][1:] == ["source recovered: coldplate_node_power_watts"]


def test_denied_energy_of_many_domains_is_logged_once(tree, read, caplog: pytest.LogCaptureFixture) -> None:
    paths = [tree.rapl(str(number), f"package-{number}", 5_000_000) for number in range(4)]
    reader = read(["rapl"])
    with caplog.at_level(logging.INFO, logger="coldplate.power"):
        reader.sample(0.0)
        for path in paths:
            path.chmod(0)
        with without_root():
            for second in range(1, 20):
                gaps = reader.gaps(float(second))
                assert {(gap.metric.name, gap.reason) for gap in gaps} == {
                    ("coldplate_node_rapl_energy_joules_total", Reason.DENIED)
                }
                assert all(str(path) in gap.detail for path, gap in zip(paths, gaps, strict=True))
        for path in paths:
            path.chmod(0o440)
        assert len(reader.values(30.0)) == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "intel-rapl:0" in told[0]
    assert "udev/70-coldplate.rules" in told[0]
    assert told[1] == "source recovered: coldplate_node_rapl_energy_joules_total"
