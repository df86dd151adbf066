"""Asks the kubelet which pods hold which devices (pod-resources API v1, over its Unix socket).

grpcio is an extra: it is imported when the socket is there for the first time, so that a node without
Kubernetes does not pay the 16 MiB that it takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from agent.backends.jobs.files import said
from agent.backends.jobs.pods import PodDevice, pod_devices
from agent.backends.jobs.wire import WireError

METHOD = "/v1.PodResourcesLister/List"
PATIENCE = 2.0
"""Seconds that the kubelet has to answer."""
LARGEST = 16 * 2**20
"""Bytes of an answer: thousands of containers with all their devices."""


class KubeletError(Exception):
    """The kubelet is there and cannot be asked, or its answer is of no use. Its text says why, and the remedy."""


class Kubelet:
    """Keeps one connection. Used by one thread."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._channel: Any = None
        self._ask: Callable[[bytes], bytes] | None = None
        self._failures: type[Exception] = OSError

    def devices(self) -> list[PodDevice] | None:
        """The GPUs that pods hold; None on a node without a kubelet. Raises KubeletError."""
        try:
            os.stat(self._socket)  # noqa: PTH116 - one call, no object
        except (FileNotFoundError, NotADirectoryError):
            self.close()
            return None
        except OSError as error:
            raise KubeletError(
                f"{said(self._socket, error)}; run the agent as root, or give it access to the directory"
            ) from error
        if self._ask is None:
            self._open()
        assert self._ask is not None
        try:
            return pod_devices(self._ask(b""))
        except WireError as error:
            raise KubeletError(f"{self._socket}: {METHOD}: the answer {error}") from error
        except self._failures as error:
            self.close()
            raise KubeletError(_failure(self._socket, error)) from error

    def close(self) -> None:
        """May be called more than once."""
        channel, self._channel, self._ask = self._channel, None, None
        if channel is not None:
            channel.close()

    def _open(self) -> None:
        try:
            import grpc
        except ImportError as error:
            raise KubeletError(
                f"{self._socket} is there, but the Python module grpc is missing: install coldplate[kubernetes] to "
                "learn the names of pods",
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
        self._channel, self._ask = channel, lambda request: bytes(call(request, timeout=PATIENCE))


def _failure(socket: str, error: Any) -> str:
    """What a failed call says (grpc.RpcError, which is a Call as well)."""
    return f"{socket}: {METHOD}: {error.code().name}: {error.details()}"
