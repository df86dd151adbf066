"""Asks the kubelet which pods hold which devices (pod-resources API v1, Unix socket), and keeps its last answer.

Only root may open the directory of that socket; if access is denied, the socket that coldplate-kubelet.socket
provides for the agent is used.

grpcio is an extra: it is imported when the socket first appears, so that a node without
Kubernetes does not pay its 16 MiB.
"""

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from agent.backends.jobs.job_files import REFUSED, describe_error
from agent.backends.jobs.pods import PodDevice, ProtobufError, pod_devices

SOCKETS = ("/var/lib/kubelet/pod-resources/kubelet.sock", "/run/coldplate-kubelet.sock")
"""Where the kubelet may be reached, in the order in which they are tried."""
REMEDY = (
    "pods that hold a GPU without a process are not seen: systemctl enable --now coldplate-kubelet.socket lets the "
    "agent ask the kubelet"
)
METHOD = "/v1.PodResourcesLister/List"
TIMEOUT_SECONDS = 2.0
"""Seconds that the kubelet has to answer."""
LARGEST = 16 * 2**20
"""Most bytes of an answer: thousands of containers with all their devices."""


class KubeletError(Exception):
    """The kubelet exists but cannot be asked, or its answer is unusable. The text says why, and gives the remedy.

    `denied` says that the agent lacks a permission, `counts` that it is a problem of attribution.
    """

    def __init__(self, text: str, *, denied: bool = False, counts: bool = False) -> None:
        super().__init__(text)
        self.denied = denied
        self.counts = counts


KEEP_SECONDS = 180.0
"""Seconds for which the kubelet's last answer counts."""


class Kubelet:
    """Keeps one connection, and the last answer for a while after the kubelet stops answering. Used by one thread.

    Only the kubelet knows a pod that holds a GPU without a process. The pods survive its restart, which takes seconds,
    or minutes during an upgrade; without its answer their GPUs would look free meanwhile. For a moment after its start
    it answers without pods: it lists those received from the API server, and does not wait for them (List in
    pkg/kubelet/apis/podresources/server_v1.go).
    """

    def __init__(self, sockets: Sequence[str] = SOCKETS) -> None:
        self._sockets = sockets
        self._socket = ""
        self._socket_identity: tuple[int, int] | None = None
        self._channel: Any = None
        self._ask: Callable[[bytes], bytes] | None = None
        self._failures: type[Exception] = OSError
        self._pods: Sequence[PodDevice] = ()
        self._listed_at = 0.0
        self._doubted = False
        """Whether the kubelet went away or was restarted since: its first answer may be incomplete."""
        self.is_there = False
        """Whether the node has a kubelet."""
        self.fault: KubeletError | None = None
        """Why it does not list the pods now."""

    def poll(self, mono: float) -> Sequence[PodDevice]:
        """Return the GPUs of pods that the kubelet lists, or listed a moment ago: pods keep them while it restarts."""
        self.is_there, self.fault = True, None
        if mono - self._listed_at > KEEP_SECONDS:
            self._pods = ()
        promise = f"; the last known pods are shown for up to {KEEP_SECONDS:.0f} s" if self._pods else ""
        try:
            devices = self._devices()
        except KubeletError as error:
            self._doubted = True
            self.fault = KubeletError(f"{error}{promise}", denied=error.denied, counts=True)
            return self._pods
        self._doubted = self._doubted or devices is None
        if not devices and self._doubted and self._pods:
            problem = "its socket is gone" if devices is None else "it was restarted and reports no pods yet"
            self.fault = KubeletError(f"{problem}{promise}")
        elif devices is None:
            self.is_there = False
        else:
            self._pods, self._listed_at, self._doubted = devices, mono, False
        return self._pods

    def _devices(self) -> list[PodDevice] | None:
        """Return the GPUs that pods hold; None on a node without a kubelet. Raises KubeletError."""
        socket = self._reachable()
        if socket != self._socket:
            self.close()
            self._socket = socket
        if not socket:
            return None
        if self._ask is None:
            self._open()
        assert self._ask is not None
        try:
            return pod_devices(self._ask(b""))
        except ProtobufError as error:
            raise KubeletError(f"{self._socket}: {METHOD}: the answer {error}") from error
        except self._failures as error:
            self.close()
            raise KubeletError(_failure(self._socket, error)) from error

    def close(self) -> None:
        channel, self._channel, self._ask = self._channel, None, None
        if channel is not None:
            channel.close()

    def _reachable(self) -> str:
        """Return the first socket that may be used; "" if none exists. Raises KubeletError if all are denied."""
        refusal = ""
        for path in self._sockets:
            try:
                status = os.stat(path)  # noqa: PTH116 - one call, no object
                if os.access(path, os.W_OK, effective_ids=True):
                    identity = status.st_ino, status.st_mtime_ns
                    # Every start of the kubelet makes a new socket.
                    self._doubted = self._doubted or self._socket_identity not in (None, identity)
                    self._socket_identity = identity
                    return path
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno not in REFUSED:
                    raise KubeletError(describe_error(path, error)) from error
                refusal = refusal or f"{describe_error(path, error)}; {REMEDY}"
        if refusal:
            raise KubeletError(refusal, denied=True)
        return ""

    def _open(self) -> None:
        try:
            import grpc
        except ImportError as error:
            raise KubeletError(
                f"{self._socket} is there, but the Python module grpc is missing; to learn the names of "
                "pods, install it in the checkout: make install EXTRAS=kubernetes, or pip install '.[kubernetes]'"
            ) from error
        options = (
            ("grpc.max_receive_message_length", LARGEST),
            ("grpc.default_authority", "localhost"),  # Go's server refuses an authority made of a path
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        )
        channel = grpc.insecure_channel(f"unix:{os.path.abspath(self._socket)}", options)  # noqa: PTH100
        call = channel.unary_unary(METHOD)  # without serializers: bytes in, bytes out
        self._failures = grpc.RpcError
        self._channel, self._ask = channel, lambda request: bytes(call(request, timeout=TIMEOUT_SECONDS))


def _failure(socket: str, error: Any) -> str:
    """Return what a failed call says (grpc.RpcError, which is a Call as well)."""
    return f"{socket}: {METHOD}: {error.code().name}: {error.details()}"
