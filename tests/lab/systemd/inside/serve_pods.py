"""A kubelet as far as its pod-resources API goes: one pod that holds one GPU. serve_pods.py SOCKET UUID"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc


def field(tag: int, content: bytes | str) -> bytes:
    """A length-delimited field of a protocol buffer, of less than 128 bytes."""
    raw = content.encode() if isinstance(content, str) else content
    return bytes([tag << 3 | 2, len(raw)]) + raw


def pods(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    """ListPodResourcesResponse (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto)."""
    device = field(1, "nvidia.com/gpu") + field(2, sys.argv[2])
    return field(1, field(1, "idle-0") + field(2, "ml") + field(3, field(1, "main") + field(2, device)))


server = grpc.server(ThreadPoolExecutor(2))
handler = grpc.unary_unary_rpc_method_handler(pods)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
server.add_insecure_port(f"unix:{sys.argv[1]}")
server.start()
time.sleep(3600)
