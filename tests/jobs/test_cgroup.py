"""Cgroup paths, by their shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.jobs.cgroup import CgroupOwner, parse_cgroup

UID = "0aaf1f3d-1111-2222-3333-444455556666"
UNDERSCORED = UID.replace("-", "_")
HEX = "3f" * 32
SHORT = HEX[:12]

V1 = """12:devices:/slurm/uid_1000/job_4711/step_0/task_0
4:memory:/slurm/uid_1000/job_4711/step_0/task_0
1:name=systemd:/system.slice/slurmd.service
0::/system.slice/slurmd.service
"""

SHAPES = {
    "/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_special": ("slurm", "4711"),
    "/system.slice/gpu_a_7_slurmstepd.scope/job_4711": ("slurm", "4711"),
    "/system.slice/system.slice/localhost_slurmstepd.scope/job_4711/step_0": ("slurm", "4711"),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{HEX}.scope":
        ("kubernetes", UID),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{HEX}.scope": ("kubernetes", UID),
    f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/crio-{HEX}.scope/container":
        ("kubernetes", UID),
    f"/kubepods/pod{UID}/{HEX}": ("kubernetes", UID),
    f"/kubepods/besteffort/pod{'0f' * 16}/{HEX}": ("kubernetes", "0f" * 16),
    f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{HEX}":
        ("kubernetes", UID),
    f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{HEX}.scope":
        ("kubernetes", UID),
    f"/../../pod{UID}/{HEX}": ("kubernetes", UID),
    f"/docker/{HEX}/kubelet/kubepods/burstable/pod{UID}/{'4a' * 32}": ("kubernetes", UID),
    f"/system.slice/docker-{HEX}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/"
    f"cri-containerd-{'4a' * 32}.scope": ("kubernetes", UID),
    f"/docker/{HEX}/kubepods/besteffort/pod{UID}/{'4a' * 32}": ("kubernetes", UID),
    f"/system.slice/k3s.service/kubepods/besteffort/pod{UID}/{HEX}": ("kubernetes", UID),
    f"/system.slice/snap.microk8s.daemon-kubelite.service/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{HEX}":
        ("kubernetes", UID),
    f"/kubepods/burstable/pod{UID}/crio-{HEX}": ("kubernetes", UID),
    f"/kubepods/pod{UID}/{HEX}/docker/{'4a' * 32}": ("kubernetes", UID),
    f"/kubepods/pod{UID}/{HEX}/system.slice/w0_slurmstepd.scope/job_4711/step_0": ("slurm", "4711"),
    "/site_gpu.service/jobid/4711.head": ("pbs", "4711.head"),
    "/pbspro/jobid/4711.head": ("pbs", "4711.head"),
    "/pbs_jobs/jobid/4711[3].head/x": ("pbs", "4711[3].head"),
    "/pbs_jobs.service": ("session", ""),
    f"/docker/{HEX}": ("docker", SHORT),
    f"/system.slice/docker-{HEX}.scope": ("docker", SHORT),
    f"/machine.slice/libpod-{HEX}.scope/container": ("podman", SHORT),
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope": ("podman", SHORT),
    f"/system.slice/nerdctl-{HEX}.scope": ("containerd", SHORT),
    f"/ecs/task/{HEX}": ("container", SHORT),
    "/lxc.payload.trainer/init.scope": ("lxc", "trainer"),
    "/system.slice/vllm.service": ("systemd", "vllm.service"),
    "/system.slice/vllm@llama.service/worker": ("systemd", "vllm@llama.service"),
    "/system.slice/run-r0123.scope": ("systemd", "run-r0123.scope"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/tune.service": ("systemd", "user-1000/tune.service"),
    "/user.slice/user-1000.slice/session-3.scope": ("session", ""),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope": ("session", ""),
    "/system.slice/ssh.service": ("session", ""),
    "/system.slice/slurmd.service": ("session", ""),
    "/init.scope": ("session", ""),
    "/": ("session", ""),
}  # fmt: skip
"""Whose the process in a path is, beside the paths of known.GENUINE."""


@pytest.mark.parametrize(("path", "expected"), SHAPES.items(), ids=list(SHAPES))
def test_a_path_says_whose_the_process_is(path: str, expected: tuple[str, str]) -> None:
    found = parse_cgroup(f"0::{path}\n")
    assert (found.scheduler, found.id) == expected
    assert found.strange == ""


def test_slurm_on_cgroup_v1_is_found_beside_other_hierarchies_and_names_the_user() -> None:
    assert parse_cgroup(V1) == CgroupOwner("slurm", "4711", uid=1000, top="/slurm/uid_1000/job_4711")


@pytest.mark.parametrize("path", ["/opt/work/7", "/htcondor/x", f"/kubepods/pod{UID[:-2]}/x", "/slurm/job_x"])
def test_an_unknown_shape_is_logged_as_it_is(path: str) -> None:
    assert parse_cgroup(f"0::{path}") == CgroupOwner("session", strange=path)


PIECES = st.sampled_from(
    ["slurm", "slurmstepd.scope", "_", "/", "job_", "uid_", "7", "kubepods", "pod", UID, HEX, "-", ".slice", ".scope",
     "docker", "libpod", "user@1000.service", ":", "0::", "\n", "..", "\0", "\ud800", "٣"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40))
def test_no_heap_of_known_pieces_makes_it_raise_and_slurm_ids_are_plain_digits(pieces: list[str]) -> None:
    found = parse_cgroup("0::" + "".join(pieces))
    if found.scheduler == "slurm":
        assert found.id.isascii()
        assert found.id.isdigit()


def test_a_huge_text_is_looked_at_in_part() -> None:
    assert parse_cgroup("0::/" + "a/" * 1_000_000).scheduler == "session"
    assert parse_cgroup("9:x:/y\n" * 100_000).strange == "/y"
