"""Names of pods from the directories of their logs, where the kubelet need not be asked."""

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.backends.jobs.job_files import read_file
from agent.backends.jobs.kubelet import Kubelet
from agent.backends.jobs.pods import PodLogDirectories
from agent.model import Reason
from tests.jobs.rig import OTHER_UID, UID, Rig
from tests.jobs.test_kubelet import FakeKubelet, kubelet, pod  # noqa: F401 - kubelet is a fixture
from tests.power.test_sysfs import without_root

STATIC = "712b37831be464ccc2fb1553ef89aa91"
CGROUPFS = "/kubepods/burstable/pod{}/" + "3f" * 32
SYSTEMD = "/kubepods.slice/kubepods-burstable-pod{}.slice/cri-containerd-" + "3f" * 32 + ".scope"


def logs(rig: Rig, *names: str) -> None:
    for name in names:
        (rig.pod_logs / name).mkdir(parents=True)


def test_a_pod_is_called_by_its_name_without_the_kubelet(rig: Rig) -> None:
    logs(
        rig, f"ml_trainer-0_{UID}", f"kube-system_proxy-node1.example.com_{STATIC}", f"ml_old_{OTHER_UID}", "lost+found"
    )
    rig.run(0, 100, SYSTEMD.format(UID.replace("-", "_")), {})
    rig.run(1, 101, CGROUPFS.format(STATIC), {})
    assert rig.look().jobs() == {
        ("kubernetes", "ml/trainer-0"): ["0"],
        ("kubernetes", "kube-system/proxy-node1.example.com"): ["1"],
    }
    assert {key: rig.holder()[key] for key in ("namespace", "pod", "name")} == {
        "namespace": "ml",
        "pod": "trainer-0",
        "name": "trainer-0",
    }
    assert (rig.gap("coldplate_job_info"), rig.problems()) == (None, {})


def test_a_pod_gets_its_name_when_its_directory_comes_and_keeps_it(rig: Rig) -> None:
    logs(rig, f"ml_trainer-0_{OTHER_UID}", f"ml_other-0_{STATIC}")  # one of the same name was there before
    rig.run(0, 100, CGROUPFS.format(UID), {})
    assert list(rig.look().jobs()) == [("kubernetes", UID)]
    logs(rig, f"ml_trainer-0_{UID}")
    assert list(rig.look().jobs()) == [("kubernetes", "ml/trainer-0")]
    (rig.pod_logs / f"ml_trainer-0_{UID}").rmdir()
    assert list(rig.look().jobs()) == [("kubernetes", "ml/trainer-0")]


def test_it_is_one_job_with_what_the_kubelet_says(rig: Rig, kubelet: FakeKubelet) -> None:  # noqa: F811
    kubelet.holds(pod("trainer-0", rig.gpus[0].uuid, rig.gpus[1].uuid))
    logs(rig, f"ml_trainer-0_{UID}", f"ml_stranger_{OTHER_UID}")
    rig.run(0, 100, CGROUPFS.format(UID), {})
    rig.run(0, 900, CGROUPFS.format(OTHER_UID), {})  # on a GPU that it was not given
    assert rig.look().jobs()[("kubernetes", "ml/trainer-0")] == ["1"]
    shared = {row["job_id"]: row["container"] for row in rig.rows("coldplate_gpu_shared_job_info")}
    assert shared == {"ml/trainer-0": "main", "ml/stranger": ""}


def as_root(path: str, most: int) -> bytes:
    """procfs stays readable while everything else is not."""
    unprivileged = os.geteuid()
    os.seteuid(os.getuid())
    try:
        return read_file(path, most)
    finally:
        os.seteuid(unprivileged)


def test_a_directory_that_may_not_be_listed_is_logged_once_with_the_remedy(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    logs(rig, f"ml_trainer-0_{UID}")
    rig.pod_logs.chmod(0)
    rig.run(0, 100, CGROUPFS.format(UID), {})
    rig.open("kubernetes", read=as_root, kubelet=[])
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"):
        with without_root():
            rig.look()
            rig.look()
        gap = rig.gap("coldplate_job_info")
        rig.pod_logs.chmod(0o755)
        rig.look()
    assert (gap.reason, str(rig.pod_logs) in gap.detail, "tmpfiles.d" in gap.detail) == (Reason.DENIED, True, True)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert (rig.gap("coldplate_job_info"), list(rig.jobs())) == (None, [("kubernetes", "ml/trainer-0")])


def test_a_directory_that_does_not_exist_or_is_not_one_is_no_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file"):
        found = PodLogDirectories(str(path))
        assert (found.names({UID}), found.denied) == ({}, "")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that everybody reaches, which those of tests are not."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        kept = place / "pod-resources"
        kept.mkdir(mode=0o700)
        yield place
        kept.chmod(0o700)


def test_the_kubelet_is_asked_through_the_proxy_socket_if_its_own_is_closed(rig: Rig, open_place: Path) -> None:
    own, handed = FakeKubelet(f"{open_place}/pod-resources/kubelet.sock"), FakeKubelet(f"{open_place}/handed.sock")
    sockets = [f"{open_place}/pod-resources/kubelet.sock", f"{open_place}/handed.sock"]
    try:
        own.holds(pod("own", rig.gpus[0].uuid))
        handed.holds(pod("handed", rig.gpus[0].uuid))
        Path(sockets[1]).chmod(0o666)
        (open_place / "pod-resources").chmod(0)  # to whoever runs the tests: its owner, too
        asked = Kubelet(sockets)
        with without_root():
            found = asked.poll(0.0)
        assert [each.pod for each in found] == ["handed"]
        found = asked.poll(0.0)
        assert [each.pod for each in found] == ["own" if os.geteuid() == 0 else "handed"]
        asked.close()
    finally:
        own.stop()
        handed.stop()


def test_where_both_are_closed_it_is_logged_once_with_the_remedy(
    rig: Rig, open_place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (open_place / "handed.sock").touch(mode=0)
    (open_place / "pod-resources").chmod(0)
    rig.open("kubernetes", kubelet=[f"{open_place}/pod-resources/kubelet.sock", f"{open_place}/handed.sock"])
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"), without_root():
        rig.look()
        rig.look()
    gap = rig.gap("coldplate_job_info")
    assert gap.reason is Reason.DENIED
    assert f"{open_place}/pod-resources/kubelet.sock: Permission denied" in gap.detail
    assert "coldplate-kubelet.socket" in gap.detail
    assert (rig.up("jobs_kubelet"), rig.problems()) == (0, {"kubelet": 2})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
