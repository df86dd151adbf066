"""Which pods hold which devices, from the answer of the kubelet's pod-resources API.

Field numbers: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Devices that a pod got through dynamic
resource allocation are named in another way and are left out: their processes are known by their cgroup.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.backends.jobs.wire import parts, text

RESPONSE_PODS = 1
POD_NAME, POD_NAMESPACE, POD_CONTAINERS = 1, 2, 3
CONTAINER_NAME, CONTAINER_DEVICES = 1, 2
DEVICES_RESOURCE, DEVICES_IDS = 1, 2

MAX_DEVICES = 4096


@dataclass(frozen=True, slots=True)
class PodDevice:
    """One GPU, or part of one, that one container of a pod holds; `device` in the words of the device plugin."""

    namespace: str
    pod: str
    container: str
    device: str
    shareable: bool = False
    """Whether several pods may have it at once."""


def is_gpu(resource: str) -> bool:
    """nvidia.com/gpu, nvidia.com/mig-1g.10gb, and nvidia.com/gpu.shared of time slicing."""
    return resource.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))


def pod_devices(answer: bytes) -> list[PodDevice]:
    """The GPUs of a ListPodResourcesResponse. Raises WireError."""
    found: list[PodDevice] = []
    for number, pod in parts(memoryview(answer)):
        if number == RESPONSE_PODS:
            _read_pod(pod, found)
    return found[:MAX_DEVICES]


def _read_pod(data: memoryview, found: list[PodDevice]) -> None:
    name = namespace = ""
    containers = []
    for number, content in parts(data):
        if number == POD_NAME:
            name = text(content)
        elif number == POD_NAMESPACE:
            namespace = text(content)
        elif number == POD_CONTAINERS:
            containers.append(content)
    for container in containers:
        _read_container(container, namespace, name, found)


def _read_container(data: memoryview, namespace: str, pod: str, found: list[PodDevice]) -> None:
    name = ""
    devices = []
    for number, content in parts(data):
        if number == CONTAINER_NAME:
            name = text(content)
        elif number == CONTAINER_DEVICES:
            devices.append(content)
    for content in devices:
        resource, ids = "", []
        for number, value in parts(content):
            if number == DEVICES_RESOURCE:
                resource = text(value)
            elif number == DEVICES_IDS:
                ids.append(text(value))
        if is_gpu(resource):
            found.extend(PodDevice(namespace, pod, name, device) for device in ids)
