"""Which pods hold which devices, from the answer of the kubelet's pod-resources API.

Field numbers: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Devices that a pod got through dynamic resource
allocation are listed as claims, with the name that NVIDIA's driver for it gives them: gpu-MINOR, or
gpu-MINOR-mig-PROFILE-START-SIZE (CanonicalName in cmd/gpu-kubelet-plugin of NVIDIA/k8s-dra-driver-gpu). Kubelets before
1.31 list the names of CDI devices alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.backends.jobs.protobuf import parts, text

RESPONSE_PODS = 1
POD_NAME, POD_NAMESPACE, POD_CONTAINERS = 1, 2, 3
CONTAINER_NAME, CONTAINER_DEVICES = 1, 2
DEVICES_RESOURCE, DEVICES_IDS = 1, 2
CONTAINER_CLAIMS, CLAIM_RESOURCES = 5, 4
RESOURCE_CDI, RESOURCE_DRIVER, RESOURCE_DEVICE = 1, 2, 4
CDI_NAME = 1

DRIVER = "gpu.nvidia.com"
"""NVIDIA's driver for dynamic resource allocation."""
_CDI = re.compile(r"k8s\.gpu\.nvidia\.com/[a-z]+=(?:.*-)?(gpu-[0-9]+(?:-mig-[0-9]+-[0-9]+-[0-9]+)?)")

MAX_DEVICES = 4096


@dataclass(frozen=True, slots=True)
class PodDevice:
    """One GPU, or part of one, that one container of a pod holds; `device` is the device plugin's id for it."""

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
    """The GPUs of a ListPodResourcesResponse. Raises ProtobufError."""
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
    claims = []
    for number, content in parts(data):
        if number == CONTAINER_NAME:
            name = text(content)
        elif number == CONTAINER_DEVICES:
            devices.append(content)
        elif number == CONTAINER_CLAIMS:
            claims.append(content)
    for content in devices:
        resource, ids = "", []
        for number, value in parts(content):
            if number == DEVICES_RESOURCE:
                resource = text(value)
            elif number == DEVICES_IDS:
                ids.append(text(value))
        if is_gpu(resource):
            found.extend(PodDevice(namespace, pod, name, device) for device in ids)
    for content in claims:
        found.extend(PodDevice(namespace, pod, name, device, shareable=True) for device in _claimed(content))


def _claimed(claim: memoryview) -> list[str]:
    """The GPUs of a DynamicResource, as NVIDIA's driver calls them."""
    found = []
    for number, resource in parts(claim):
        if number == CLAIM_RESOURCES:
            driver = device = listed = ""
            for field, content in parts(resource):
                if field == RESOURCE_DRIVER:
                    driver = text(content)
                elif field == RESOURCE_DEVICE:
                    device = text(content)
                elif field == RESOURCE_CDI and not listed:
                    listed = _cdi_device(content)
            name = device if driver == DRIVER else "" if driver else listed
            found.extend([name] if name else [])
    return found


def _cdi_device(data: memoryview) -> str:
    names = [text(content) for number, content in parts(data) if number == CDI_NAME]
    match = _CDI.fullmatch(names[0]) if names else None
    return match[1] if match else ""
