"""The pod-resources API: a real gRPC server on a Unix socket is asked for the pods of each GPU."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.jobs.rig import LOGIN, OTHER_UID, SLURM, UID, Rig
from tests.protobuf import varint

POD_CGROUP = "/kubepods.slice/kubepods-burstable-pod{}.slice/cri-containerd-" + "3f" * 32 + ".scope"

Pod = tuple[str, str, Sequence[tuple[str, str, Sequence[str]]]]
"""Namespace, name, and containers: name, resource, device ids."""


def field(tag: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(tag << 3) + varint(content)
    raw = content.encode() if isinstance(content, str) else content
    return varint(tag << 3 | 2) + varint(len(raw)) + raw


def response(*pods: Pod) -> bytes:
    """A ListPodResourcesResponse, with fields that a reader must skip."""
    out = b""
    for namespace, name, containers in pods:
        body = field(1, name) + field(2, namespace)
        for container, resource, devices in containers:
            ids = b"".join(field(2, device) for device in devices)
            topology = field(3, field(1, field(1, 1)))
            body += field(
                3, field(1, container) + field(2, field(1, resource) + ids + topology) + field(3, b"\x01\x02")
            )
        out += field(1, body)
    return out


def claiming(*pods: tuple[str, Sequence[bytes]]) -> bytes:
    """A response with pods that got their devices through claims: name and ClaimResources."""
    out = b""
    for name, resources in pods:
        claim = field(2, f"{name}-claim") + field(3, "ml") + b"".join(field(4, resource) for resource in resources)
        container = field(1, "main") + field(3, b"\x01\x02") + field(5, claim)
        out += field(1, field(1, name) + field(2, "ml") + field(3, container))
    return out


def claimed(device: str, driver: str = "gpu.nvidia.com") -> bytes:
    """A ClaimResource as kubelets since 1.31 write it."""
    cdi = field(1, f"k8s.{driver}/claim=8d1f2c-{device}")
    return field(1, cdi) + field(2, driver) + field(3, "node1") + field(4, device)


class FakeKubelet:
    """Speaks pod-resources v1. `answer` gives the response, or ends the call with an error."""

    def __init__(self, socket: str) -> None:
        self.answer: Callable[[grpc.ServicerContext], bytes] = lambda context: b""
        self.asked = 0
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        handler = grpc.unary_unary_rpc_method_handler(self._list)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked += 1
        return self.answer(context)

    def refuse(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, words: str = "restarting") -> None:
        self.answer = lambda context: context.abort(code, words)

    def holds(self, *pods: Pod) -> None:
        self.answer = lambda context: response(*pods)

    def stop(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def kubelet(rig: Rig) -> Iterator[FakeKubelet]:
    made = FakeKubelet(str(rig.socket))
    yield made
    if rig.backend is not None:
        rig.backend.close()
    made.stop()


def pod(name: str, *devices: str, resource: str = "nvidia.com/gpu") -> Pod:
    return ("ml", name, [("main", resource, devices)])


def test_pods_that_hold_gpus_without_a_process_are_shown(rig: Rig, kubelet: FakeKubelet) -> None:
    uuids = [gpu.uuid for gpu in rig.gpus]
    kubelet.holds(pod("serve-0", uuids[0], uuids[1]), pod("web", "x", resource="example.com/fpga"), pod("b", uuids[2]))
    assert rig.look().jobs() == {("kubernetes", "ml/serve-0"): ["0", "1"], ("kubernetes", "ml/b"): ["2"]}
    assert rig.holder() | {"namespace": "ml", "pod": "serve-0", "container": "main", "name": "serve-0"} == rig.holder()
    assert rig.value("coldplate_job_processes", job_id="ml/serve-0") == 0
    assert (rig.up("jobs_kubelet"), rig.problems()) == (1, {})
    rig.look()
    assert kubelet.asked == 2


def test_a_pod_that_holds_a_gpu_by_a_resource_of_another_name_is_shown(rig: Rig, kubelet: FakeKubelet) -> None:
    """The device plugin may be told to call them nvidia.com/a100; HAMi counts memory as nvidia.com/gpumem."""
    kubelet.holds(
        pod("a", rig.gpus[0].uuid, resource="nvidia.com/a100"),
        pod("b", "vf-1", resource="nvidia.com/TU104"),
        pod("c", "nvidia.com-gpumem-0", resource="nvidia.com/gpumem"),
    )
    assert (rig.look().jobs(), rig.problems()) == ({("kubernetes", "ml/a"): ["0"]}, {})


def test_processes_get_the_name_of_their_pod_and_keep_it(rig: Rig, kubelet: FakeKubelet) -> None:
    kubelet.holds(pod("trainer-0", rig.gpus[0].uuid, rig.gpus[1].uuid))
    rig.run(0, 100, POD_CGROUP.format(UID.replace("-", "_")), None)
    assert rig.look().jobs() == {("kubernetes", "ml/trainer-0"): ["0", "1"]}
    kubelet.refuse()
    assert rig.look(after=200.0).jobs() == {("kubernetes", "ml/trainer-0"): ["0"]}
    assert (rig.up("jobs_kubelet"), rig.problems()) == (0, {"unreadable": 1, "kubelet": 1})


def test_pods_without_a_process_stay_a_while_when_the_kubelet_restarts(
    rig: Rig, kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.holds(pod("idle-0", rig.gpus[0].uuid))
    rig.look()
    kubelet.refuse()
    for _ in range(3):
        assert rig.look(after=60.0).jobs() == {("kubernetes", "ml/idle-0"): ["0"]}
        assert rig.up("jobs_kubelet") == 0
    told = [record.message for record in caplog.records if "restarting" in record.message]
    assert len(told) == 1
    assert told[0].endswith("the last known pods are shown for up to 180 s")
    assert rig.look(after=60.0).jobs() == {}


def test_a_restarted_kubelet_that_names_others_is_believed_at_once(rig: Rig, kubelet: FakeKubelet) -> None:
    kubelet.holds(pod("idle-0", rig.gpus[0].uuid))
    rig.look()
    kubelet.refuse()
    rig.look()
    kubelet.holds(pod("next-0", rig.gpus[1].uuid))
    assert (rig.look().jobs(), rig.up("jobs_kubelet")) == ({("kubernetes", "ml/next-0"): ["1"]}, 1)
    kubelet.holds()
    assert (rig.look().jobs(), rig.up("jobs_kubelet")) == ({}, 1)


@pytest.mark.parametrize("seen", [True, False], ids=["while it was away", "between two looks"])
def test_a_restarted_kubelet_that_names_no_pods_yet_does_not_free_their_gpus(
    rig: Rig, kubelet: FakeKubelet, seen: bool
) -> None:
    kubelet.holds(pod("idle-0", rig.gpus[0].uuid))
    rig.look()
    kubelet.stop()
    rig.socket.unlink(missing_ok=True)
    if seen:
        assert (rig.look().jobs(), rig.up("jobs_kubelet")) == ({("kubernetes", "ml/idle-0"): ["0"]}, 0)
    again = FakeKubelet(str(rig.socket))
    try:
        for _ in range(2):
            rig.look(after=60.0)
            assert (rig.jobs(), rig.up("jobs_kubelet")) == ({("kubernetes", "ml/idle-0"): ["0"]}, 0)
        rig.look(after=120.0)
        assert (rig.jobs(), rig.up("jobs_kubelet")) == ({}, 1)
        again.holds(pod("idle-0", rig.gpus[0].uuid))
        rig.look()
        assert (rig.jobs(), rig.up("jobs_kubelet")) == ({("kubernetes", "ml/idle-0"): ["0"]}, 1)
    finally:
        again.stop()


def test_a_pod_that_ended_does_not_share_the_gpu_of_its_successor(rig: Rig, kubelet: FakeKubelet) -> None:
    uuid = rig.gpus[0].uuid
    kubelet.holds(pod("first", uuid))
    rig.look()
    kubelet.holds(pod("second", uuid), pod("first", uuid))
    assert rig.look().jobs() == {("kubernetes", "ml/second"): ["0"]}
    kubelet.holds(pod("first", uuid), pod("second", uuid))  # in whatever order it lists them
    assert (rig.look().holder()["pod"], rig.holder()["shared"]) == ("second", "false")


def made_in_order(first: Path, second: Path) -> None:
    """Two directories, of which the file system says that the second is the younger one."""
    first.mkdir(parents=True)
    second.mkdir()
    while second.stat().st_ctime <= first.stat().st_ctime:
        os.utime(second)


def test_of_two_pods_the_working_one_has_the_device_else_the_younger_else_both(rig: Rig, kubelet: FakeKubelet) -> None:
    """Both are there when the agent starts: which was given the device last is not known."""
    uuid = rig.gpus[0].uuid
    kubelet.holds(pod("second", uuid, rig.gpus[1].uuid), pod("first", uuid))
    assert rig.look().holder()["shared"] == "true", "nothing shows which has it"
    made_in_order(rig.pod_logs / f"ml_first_{UID}", rig.pod_logs / f"ml_second_{OTHER_UID}")
    rig.open()
    assert rig.look().jobs() == {("kubernetes", "ml/second"): ["0", "1"]}
    rig.run(0, 100, POD_CGROUP.format(UID), None)
    rig.open()
    assert rig.look().jobs() == {("kubernetes", "ml/first"): ["0"], ("kubernetes", "ml/second"): ["1"]}


def test_pods_that_share_a_gpu_are_distinguished_by_their_host_names(rig: Rig, kubelet: FakeKubelet) -> None:
    uuid = rig.gpus[0].uuid
    kubelet.holds(pod("a", f"{uuid}::0", resource="nvidia.com/gpu.shared"), pod("b", f"{uuid}::1"))
    for pid, uid, host in ((100, UID, "a"), (101, OTHER_UID, "b")):
        rig.run(0, pid, POD_CGROUP.format(uid), {"HOSTNAME": host})
    assert rig.look().holder()["shared"] == "true"
    assert {row["job_id"] for row in rig.rows("coldplate_gpu_shared_job_info")} == {"ml/a", "ml/b"}


def test_pods_that_cannot_be_distinguished_keep_their_uids(rig: Rig, kubelet: FakeKubelet) -> None:
    uuid = rig.gpus[1].uuid
    kubelet.holds(pod("a", rig.gpus[0].uuid), pod("b", f"{uuid}::0"), pod("c", f"{uuid}::1"))
    rig.run(0, 100, POD_CGROUP.format(UID), None)
    rig.run(1, 101, POD_CGROUP.format("2" + UID[1:]), None)
    assert [rig.look().holder(gpu)["job_id"] for gpu in (0, 1)] == ["ml/a", "2" + UID[1:]]
    rig.run(0, 900, POD_CGROUP.format(OTHER_UID), None)  # both seem to own it
    assert {row["job_id"] for row in rig.look().rows("coldplate_gpu_shared_job_info")} == {UID, OTHER_UID}


def test_a_pod_on_gpus_that_it_was_not_given_is_not_called_after_their_owners(rig: Rig, kubelet: FakeKubelet) -> None:
    kubelet.holds(pod("a", rig.gpus[0].uuid), pod("b", rig.gpus[1].uuid, rig.gpus[2].uuid))
    rig.proc.process(100, POD_CGROUP.format(UID), None)
    rig.proc.process(900, POD_CGROUP.format(OTHER_UID), None)
    rig.put(0, 100)
    for gpu in range(3):
        rig.put(gpu, 900)
    rig.look()
    shared = {(row["gpu"], row["job_id"]) for row in rig.rows("coldplate_gpu_shared_job_info")}
    assert shared == {("0", "ml/a"), ("0", OTHER_UID)}
    assert [rig.holder(gpu)["job_id"] for gpu in (1, 2)] == [OTHER_UID, OTHER_UID]


def test_devices_are_found_as_gke_names_them_by_the_numbers_of_their_files(rig: Rig, kubelet: FakeKubelet) -> None:
    """The order of a published node of GKE, whose device files are not in the order of the bus."""
    for index, number in enumerate((2, 3, 0, 1)):
        rig.minor(index, number)
    rig.divide(0, slice=7)
    kubelet.holds(
        pod("a", "MIG-slice", resource="nvidia.com/mig-1g.10gb"),
        pod("b", "nvidia3/gi3"),
        pod("c", "nvidia0"),
        pod("d", "nvidia1/vgpu0"),
        pod("e", "nvidia1/vgpu1"),
        pod("f", "nvidia2/gi7/vgpu0"),
        pod("g", "nvidia2/gi9"),
        pod("h", "nvidia4"),
    )
    rig.look()
    held = {(row["gpu"], row["mig"]): row["pod"] for row in rig.rows("coldplate_gpu_job_info") if row["pod"]}
    assert held == {("1", "3"): "b", ("2", "0"): "c"}
    shared = {(row["gpu"], row["mig"], row["pod"]) for row in rig.rows("coldplate_gpu_shared_job_info")}
    assert shared == {("0", "7", "a"), ("0", "7", "f"), ("3", "0", "d"), ("3", "0", "e")}
    assert rig.look().problems() == {"unknown_device": 2}, "no such instance, no such file; each counts once"


def test_a_device_file_whose_number_is_not_known_is_no_index(
    rig: Rig, kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.holds(pod("a", "nvidia0"))
    assert (rig.look().jobs(), rig.problems()) == ({}, {"unknown_device": 1})
    assert "driver/nvidia/gpus" in caplog.text


def test_shares_of_hami_name_no_gpu_and_that_is_said_once(
    rig: Rig, kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet picks shares by itself: HAMi gives the pod other GPUs."""
    kubelet.holds(
        pod("a", *(f"{rig.gpus[0].uuid}-{number}" for number in (17, 6, 2))), pod("b", f"{rig.gpus[1].uuid}-1")
    )
    rig.run(3, 100, POD_CGROUP.format(UID), {"HOSTNAME": "a"}, uid=0)
    assert rig.look().look().jobs() == {("kubernetes", UID): ["3"]}
    assert (rig.holder(3)["name"], rig.problems()) == ("a", {"unknown_device": 1})
    assert sum("hami.io" in message for message in caplog.messages) == 1


def test_mig_devices_are_found_by_uuid(rig: Rig, kubelet: FakeKubelet) -> None:
    rig.divide(0, slice=7)
    kubelet.holds(pod("a", "MIG-slice", resource="nvidia.com/mig-1g.10gb"))
    assert (rig.look().holder()["mig"], rig.holder()["pod"]) == ("7", "a")


def test_a_process_without_an_instance_is_on_its_own_pods(rig: Rig, kubelet: FakeKubelet) -> None:
    rig.divide(0, slice=7, other=8)
    kubelet.holds(pod("a", "MIG-slice"), pod("b", "MIG-other"))
    rig.run(0, 100, POD_CGROUP.format(UID), {"HOSTNAME": "a"})
    assert {row["mig"]: row["pod"] for row in rig.look().holders(0)} == {"7": "a", "8": "b"}
    assert rig.value("coldplate_job_processes", job_id="ml/a") == 1


def test_devices_of_claims_are_found_by_the_minor_number_that_they_are_called_by(
    rig: Rig, kubelet: FakeKubelet
) -> None:
    for gpu, number in enumerate((3, 2, 1, 0)):
        rig.minor(gpu, number)
    older = field(1, field(1, "k8s.gpu.nvidia.com/device=gpu-1"))
    others = (claimed("nic-0", "dra.net"), claimed("channel-0", "compute-domain.nvidia.com"))
    answer = claiming(("a", [claimed("gpu-3"), claimed("gpu-2")]), ("b", [older]), ("c", others))
    kubelet.answer = lambda context: answer
    assert rig.look().jobs() == {("kubernetes", "ml/a"): ["0", "1"], ("kubernetes", "ml/b"): ["2"]}
    assert (rig.holder()["container"], rig.problems()) == ("main", {})


def test_a_claim_may_be_shared_by_pods_and_a_part_of_a_gpu_is_not_the_whole(rig: Rig, kubelet: FakeKubelet) -> None:
    rig.minor(0, 0)
    rig.minor(1, 1)
    answer = claiming(("a", [claimed("gpu-0"), claimed("gpu-1-mig-19-0-1")]), ("b", [claimed("gpu-0")]))
    kubelet.answer = lambda context: answer
    rig.look()
    assert {row["job_id"] for row in rig.look().rows("coldplate_gpu_shared_job_info")} == {"ml/a", "ml/b"}
    assert (rig.holder(1)["pod"], rig.holder(1)["mig"]) == ("a", "")


@pytest.mark.parametrize(
    "answer",
    [
        claiming(("a", [claimed("gpu-0")])),
        claiming(("a", [claimed(f"gpu-{'7' * 5000}")])),
        response(pod("a", "GPU-elsewhere")),
    ],
    ids=["no such minor", "a number that Python does not convert", "another node"],
)
def test_an_unknown_minor_number_of_a_claim_and_a_device_of_another_node_are_counted(
    rig: Rig, kubelet: FakeKubelet, answer: bytes
) -> None:
    kubelet.answer = lambda context: answer
    assert (rig.look().jobs(), rig.problems()) == ({}, {"unknown_device": 1})


def test_the_pod_of_an_mps_server_gives_way_to_the_pod_that_it_serves(rig: Rig, kubelet: FakeKubelet) -> None:
    """The device plugin runs the server in a pod of its own; the child of an engine may drop its variables."""
    kubelet.holds(pod("vllm", f"{rig.gpus[0].uuid}::0", resource="nvidia.com/gpu.shared"))
    rig.run(0, 100, POD_CGROUP.format(OTHER_UID), {"HOSTNAME": "mps"}, uid=0, command="nvidia-cuda-mps")
    rig.run(0, 101, POD_CGROUP.format(UID), {}, uid=0)
    assert rig.look().jobs() == {("kubernetes", "ml/vllm"): ["0"]}
    assert rig.value("coldplate_job_processes", job_id="ml/vllm") == 1


def test_a_pod_gives_way_to_a_slurm_job_and_has_processes_of_unknown_origin(rig: Rig, kubelet: FakeKubelet) -> None:
    uuids = [gpu.uuid for gpu in rig.gpus]
    two = [(container, "nvidia.com/gpu", [f"{uuids[3]}::{number}"]) for number, container in enumerate("xy")]
    kubelet.holds(pod("worker-0", *uuids[:2]), pod("vm", uuids[2]), ("ml", "a", two))
    rig.run(0, 100, SLURM.format(4711), {})
    rig.run(2, 101, LOGIN, {})
    assert (rig.look().holder(0)["job_id"], rig.holder(0)["shared"]) == ("4711", "false")
    assert rig.holder(1)["pod"] == "worker-0"
    assert (rig.holder(2)["pod"], rig.value("coldplate_job_processes", job_id="ml/vm")) == ("vm", 1)
    of_two_containers = rig.holder(3)
    assert [of_two_containers[key] for key in ("pod", "container", "shared")] == ["a", "", "false"]


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL]
)
def test_a_kubelet_that_refuses_is_reported_in_its_words(
    rig: Rig, kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode
) -> None:
    kubelet.refuse(code, "not today")
    assert (rig.look().up("jobs_kubelet"), rig.problems(), rig.gap("coldplate_job_info")) == (0, {"kubelet": 1}, None)
    assert f"{code.name}: not today" in caplog.text


@pytest.mark.parametrize("garbage", [b"\x0a\xff\xff", b"\xff" * 11])
def test_a_garbled_answer_is_reported_and_the_next_good_one_counts(
    rig: Rig, kubelet: FakeKubelet, garbage: bytes
) -> None:
    kubelet.answer = lambda context: garbage
    assert (rig.look().up("jobs_kubelet"), rig.problems()) == (0, {"kubelet": 1})
    kubelet.holds(pod("a", rig.gpus[0].uuid))
    assert rig.look().up("jobs_kubelet") == 1
    assert rig.holder()["pod"] == "a"


def test_without_grpcio_the_remedy_is_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    rig.socket.touch()
    assert rig.look().up("jobs_kubelet") == 0
    assert "make install EXTRAS=kubernetes, or pip install '.[kubernetes]'" in caplog.text
