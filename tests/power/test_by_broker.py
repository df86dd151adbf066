"""The management controller where only the broker may ask it, and what is said of what may not be read."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from agent.backends.power.ipmi import IpmiPower, IpmiTransport, open_transport
from agent.backends.protocol import AbsentError, DeviceError
from agent.broker.answering import Broker, serve
from agent.broker.asking import BrokerClient
from agent.model import Reason
from tests.broker.conftest import IDLE, Bmc, in_thread, listening
from tests.power.test_ipmi import response
from tests.power.test_sysfs import without_root

IPMI = 'power_watts{source="ipmi"}'


def closed(path: str) -> IpmiTransport:
    """The device as the unit's DevicePolicy= shows it."""
    raise PermissionError(errno.EPERM, "Operation not permitted", path)


def by(broker: BrokerClient) -> IpmiPower:
    return IpmiPower(lambda: open_transport(lambda: "/dev/ipmi0", closed, broker))


def fault(source: IpmiPower) -> DeviceError:
    with pytest.raises(DeviceError) as told:
        source.watts()
    return told.value


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
        (PermissionError(errno.EACCES, "Permission denied"), Reason.DENIED),
        (OSError(errno.EIO, "Input/output error"), Reason.LOST),
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


def test_without_a_broker_the_device_is_denied_and_the_remedy_named(tmp_path: Path) -> None:
    told = fault(by(BrokerClient(str(tmp_path / "none.sock"))))
    assert told.reason is Reason.DENIED
    assert "/dev/ipmi0: Operation not permitted" in told.detail
    assert "systemctl enable --now coldplate-broker.socket" in told.detail


def test_a_broker_that_talks_nonsense_is_malformed_and_one_that_is_gone_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"

    def nonsense(listener) -> None:
        listener.settimeout(IDLE)
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.send(b"7000 W")

    with in_thread(listening(path), nonsense):
        assert fault(by(BrokerClient(str(path)))).reason is Reason.MALFORMED
    assert fault(by(BrokerClient(str(path)))).reason is Reason.LOST


def test_a_node_without_the_device_asks_no_broker() -> None:
    with pytest.raises(AbsentError):
        open_transport(lambda: None, closed, BrokerClient("/nowhere"))


def test_a_denied_controller_is_logged_once_and_once_when_it_is_well(read, tmp_path: Path, caplog) -> None:
    path = tmp_path / "broker.sock"
    reader = read(["ipmi"], ipmi=lambda: open_transport(lambda: "/dev/ipmi0", closed, BrokerClient(str(path))))
    with caplog.at_level(logging.INFO, logger="coldplate.power"):
        for second in range(1000):
            (gap,) = reader.gaps(float(second))
        assert gap.reason is Reason.DENIED
        assert [record.getMessage() for record in caplog.records] == [gap.detail]
        with served(tmp_path, Bmc(response(5000))):
            assert reader.values(2000.0) == {IPMI: 5000.0}
            reader.values(2001.0)
    assert [record.getMessage() for record in caplog.records][1:] == ["source recovered: coldplate_node_power_watts"]


def test_a_broker_that_is_installed_later_is_found_within_half_a_minute(read, tmp_path: Path) -> None:
    """No account is locked by asking whether a file may be opened, unlike a refused login."""
    path = tmp_path / "broker.sock"
    reader = read(["ipmi"], ipmi=lambda: open_transport(lambda: "/dev/ipmi0", closed, BrokerClient(str(path))))
    assert [gap.reason for gap in reader.gaps(0.0)] == [Reason.DENIED]
    with served(tmp_path, Bmc(response(5000))):
        assert reader.values(30.0) == {IPMI: 5000.0}


def test_denied_energy_of_many_domains_is_logged_once(tree, read, caplog: pytest.LogCaptureFixture) -> None:
    paths = [tree.rapl(str(number), f"package-{number}", 5_000_000) for number in range(4)]
    reader = read(["rapl"])
    with caplog.at_level(logging.INFO, logger="coldplate.power"):
        reader.sample(0.0)
        for path in paths:
            path.chmod(0)
        with without_root():
            for second in range(1, 20):
                assert len(reader.gaps(float(second))) == 4
        for path in paths:
            path.chmod(0o440)
        assert len(reader.values(30.0)) == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "intel-rapl:0" in told[0]
    assert "udev/70-coldplate.rules" in told[0]
    assert told[1] == "source recovered: coldplate_node_rapl_energy_joules_total"
