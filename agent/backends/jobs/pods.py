"""Reads which pods hold which GPUs from the kubelet's pod-resources API, and pods' names from their log directories.

Field numbers: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Devices that a pod got through dynamic resource
allocation are listed as claims, with the name that NVIDIA's DRA driver gives them: gpu-MINOR, or
gpu-MINOR-mig-PROFILE-START-SIZE (CanonicalName in cmd/gpu-kubelet-plugin of NVIDIA/k8s-dra-driver-gpu). Kubelets before
1.31 list only the names of CDI devices.

The protobuf wire format is decoded here, with bounds on everything: generated code would need the protobuf library for
three strings and a list. Unknown field numbers are skipped, as the format requires of readers older than the writer.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from agent.backends.jobs.job_files import REFUSED, describe_error

WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class ProtobufError(ValueError):
    """The bytes are not a valid message; the text says what is wrong, without a subject: "ends within a number"."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at offset `at`, and the offset after it. Raises ProtobufError."""
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise ProtobufError("ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at
    raise ProtobufError("has a number of more than ten bytes")


def fields_of(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of each length-delimited field, a text or a message. Raises ProtobufError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == WIRE_VARINT:
            _, at = _varint(data, at)
            continue
        if kind == WIRE_BYTES:
            size, at = _varint(data, at)
        elif kind in (WIRE_FIXED64, WIRE_FIXED32):
            size = 8 if kind == WIRE_FIXED64 else 4
        else:
            raise ProtobufError(f"has the wire type {kind}")
        if at + size > len(data):
            raise ProtobufError("ends within a field")
        if kind == WIRE_BYTES:
            yield tag >> 3, data[at : at + size]
        at += size


def read_text(data: memoryview) -> str:
    """Return a string field. Raises ProtobufError."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtobufError(f"has invalid text: {error.reason}") from error


RESPONSE_PODS = 1
POD_NAME, POD_NAMESPACE, POD_CONTAINERS = 1, 2, 3
CONTAINER_NAME, CONTAINER_DEVICES = 1, 2
DEVICES_RESOURCE, DEVICES_IDS = 1, 2
CONTAINER_CLAIMS, CLAIM_RESOURCES = 5, 4
RESOURCE_CDI, RESOURCE_DRIVER, RESOURCE_DEVICE = 1, 2, 4
CDI_NAME = 1

DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver."""
_CDI = re.compile(r"k8s\.gpu\.nvidia\.com/[a-z]+=(?:.*-)?(gpu-[0-9]+(?:-mig-[0-9]+-[0-9]+-[0-9]+)?)")

MAX_DEVICES = 4096

PodName = tuple[str, str]
"""Namespace and name of a pod."""


class PodDevice(Struct, frozen=True):
    """A GPU, or a part of one, that a container of a pod holds.

    `device` is its id by the device plugin, or its name by the DRA driver.
    """

    namespace: str
    pod: str
    container: str
    device: str
    shareable: bool = False
    """Whether several pods may hold it at once."""

    @property
    def pod_name(self) -> PodName:
        return self.namespace, self.pod


_GPU_RESOURCE = re.compile(r"nvidia\.com/(?:gpu|mig-[^/]+)(?:\.[^/]+)?")
"""nvidia.com/gpu, nvidia.com/mig-1g.10gb, and nvidia.com/gpu.shared of time slicing."""
_UUID = ("GPU-", "MIG-")
"""How the device ids of NVIDIA's device plugin begin, whatever name a site gives to the resource."""


def is_gpu(resource: str, device: str) -> bool:
    """Return whether a device of an extended resource is a GPU, or a part of one."""
    return device.startswith(_UUID) or _GPU_RESOURCE.fullmatch(resource) is not None


def pod_devices(response: bytes) -> list[PodDevice]:
    """Return the GPUs in a ListPodResourcesResponse, at most MAX_DEVICES. Raises ProtobufError."""
    devices: list[PodDevice] = []
    for number, pod in fields_of(memoryview(response)):
        if number == RESPONSE_PODS:
            _read_pod(pod, devices)
    return devices[:MAX_DEVICES]


def _by_number(data: memoryview) -> dict[int, list[memoryview]]:
    contents: dict[int, list[memoryview]] = defaultdict(list)
    for number, content in fields_of(data):
        contents[number].append(content)
    return contents


def _text_of(contents: Sequence[memoryview]) -> str:
    """Return the last of a field's contents, the one that counts in protobuf; "" without any."""
    return read_text(contents[-1]) if contents else ""


def _read_pod(data: memoryview, devices: list[PodDevice]) -> None:
    fields = _by_number(data)
    namespace, name = _text_of(fields[POD_NAMESPACE]), _text_of(fields[POD_NAME])
    for container in fields[POD_CONTAINERS]:
        _read_container(container, namespace, name, devices)


def _read_container(data: memoryview, namespace: str, pod: str, pod_gpus: list[PodDevice]) -> None:
    fields = _by_number(data)
    name = _text_of(fields[CONTAINER_NAME])
    for content in fields[CONTAINER_DEVICES]:
        devices = _by_number(content)
        resource = _text_of(devices[DEVICES_RESOURCE])
        ids = [read_text(device) for device in devices[DEVICES_IDS]]
        pod_gpus.extend(PodDevice(namespace, pod, name, device) for device in ids if is_gpu(resource, device))
    for content in fields[CONTAINER_CLAIMS]:
        pod_gpus.extend(PodDevice(namespace, pod, name, device, shareable=True) for device in _claimed(content))


def _claimed(claim: memoryview) -> Iterator[str]:
    """Yield the names of the GPUs in a DynamicResource."""
    for resource in _by_number(claim)[CLAIM_RESOURCES]:
        fields = _by_number(resource)
        driver = _text_of(fields[RESOURCE_DRIVER])
        if not driver:  # a kubelet before 1.31
            name = next(filter(None, map(_cdi_device, fields[RESOURCE_CDI])), "")
        elif driver == DRIVER:
            name = _text_of(fields[RESOURCE_DEVICE])
        else:
            continue
        if name:
            yield name


def _cdi_device(data: memoryview) -> str:
    """Return the GPU's name from a CDI device's; "" for a device of another kind."""
    names = _by_number(data)[CDI_NAME]
    match = _CDI.fullmatch(read_text(names[0])) if names else None
    return match[1] if match else ""


POD_LOGS = "/var/log/pods"
MAX_POD_DIRECTORIES = 65_536
"""Entries of the directory that are read at most."""
POD_LOGS_REMEDY = (
    "pods are known only by uid: tmpfiles.d/coldplate.conf lets the agent's group list the directory, "
    "coldplate-kubelet.socket lets the agent ask the kubelet"
)


def parse_directory(name: str) -> tuple[str, PodName] | None:
    """Return the uid and the name of the pod of NAMESPACE_NAME_UID; None for a name of another form."""
    namespace, _, rest = name.partition("_")
    pod, _, uid = rest.partition("_")
    if not (namespace and pod and uid) or "_" in uid:
        return None
    return uid, (namespace, pod)


class PodLogDirectories:
    """Finds the names of pods by their uids, from the directories that the kubelet creates for their logs.

    /var/log/pods/NAMESPACE_NAME_UID is created before a pod's first container, and removed some time after the pod: a
    uid is never reused, so a stale one does no harm. Neither a namespace nor a pod name may contain "_". A static pod's
    uid is the MD5 of its manifest, 32 hexadecimal digits, in its cgroup and here. (kubernetes, pkg/kubelet:
    BuildPodLogsDirectory in kuberuntime/helpers.go, applyDefaults in config/common.go.) Newer kubelets create the
    directory for root only (setupDataDirs in kubelet.go: 0750), older ones let anyone list it.

    The directory is read only while a requested name is unknown.
    """

    def __init__(self, directory: str = POD_LOGS) -> None:
        self._directory = directory
        self._names: dict[str, PodName] = {}
        self.denied = ""
        """Why the directory may not be listed, with the remedy; "" if it may be, or does not exist."""

    def names(self, uids: Collection[str]) -> Mapping[str, PodName]:
        """Return the known names of the pods with these uids, by uid; forget all other uids."""
        self._names = {uid: pod for uid, pod in self._names.items() if uid in uids}
        if len(self._names) < len(uids):
            self.denied = ""
            try:
                self._names.update((uid, pod) for uid, pod, _ in self._listed() if uid in uids)
            except OSError as error:
                if error.errno in REFUSED:
                    self.denied = f"{describe_error(self._directory, error)}; {POD_LOGS_REMEDY}"
        return self._names

    def creation_times(self, pods: Collection[PodName]) -> Mapping[PodName, float]:
        """Return when the directories of these pods were created, in seconds since the epoch.

        Of several pods with one name, the latest counts. A pod without a directory is missing; all are if the directory
        may not be listed.
        """
        created: dict[PodName, float] = {}
        with suppress(OSError):
            for _, name, entry in self._listed():
                if name in pods:
                    created[name] = max(created.get(name, 0.0), entry.stat().st_ctime)
        return created

    def _listed(self) -> Iterator[tuple[str, PodName, os.DirEntry[str]]]:
        """Yield the uid and the name of the pod of each directory. Raises OSError."""
        with os.scandir(self._directory) as entries:
            for entry in islice(entries, MAX_POD_DIRECTORIES):
                parsed = parse_directory(entry.name)
                if parsed is not None:
                    yield *parsed, entry


class PodDeviceOwners:
    """Finds out which pod holds a device that the kubelet lists for several.

    A kubelet lists a pod that has ended until it is deleted, and may have given its device to another pod meanwhile
    (its device manager takes devices back from pods that ended; kubernetes/kubernetes issue 119423). A device of a
    device plugin belongs to one pod at a time: the last one that received it. Claims of dynamic resource allocation may
    be shared, and are left unchanged.
    """

    def __init__(self) -> None:
        self._first_polls: dict[tuple[str, PodName], int] = {}
        """The poll that first listed a pod with a device."""
        self._poll = 0

    @staticmethod
    def contested(listed: Sequence[PodDevice]) -> set[PodName]:
        """Return the pods that share a device of a device plugin with another pod in the list."""
        by_device: dict[str, set[PodName]] = {}
        for device in listed:
            if not device.shareable:
                by_device.setdefault(device.device, set()).add(device.pod_name)
        return {name for names in by_device.values() if len(names) > 1 for name in names}

    def current(
        self, listed: Sequence[PodDevice], active: Collection[PodName], created: Mapping[PodName, float]
    ) -> list[PodDevice]:
        """Return the entries of the list whose pod holds the device now. Call once per poll.

        `active` pods have processes on a GPU; `created` has the pods' creation times, as far as they are known. If
        nothing decides between two pods, both stay.
        """
        self._poll += 1
        keyed = [(entry, (entry.device, entry.pod_name)) for entry in listed]
        self._first_polls = {key: self._first_polls.get(key, self._poll) for _, key in keyed}
        latest: dict[str, tuple[bool, int, float]] = {}
        for _, (device, name) in keyed:
            order = self._order(device, name, active, created)
            latest[device] = max(latest.get(device, order), order)
        return [
            entry
            for entry, (device, name) in keyed
            if entry.shareable or self._order(device, name, active, created) == latest[device]
        ]

    def _order(
        self, device: str, name: PodName, active: Collection[PodName], created: Mapping[PodName, float]
    ) -> tuple[bool, int, float]:
        """Return a sort key: active pods above all others, then pods by when they received the device."""
        return name in active, self._first_polls[device, name], created.get(name, 0.0)
