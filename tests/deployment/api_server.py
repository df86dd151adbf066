"""As much of an API server as kubectl asks when it decides what an object is: the lists of kinds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KINDS = {
    "v1": ("ConfigMap", "Service", "ServiceAccount"),
    "apps/v1": ("DaemonSet",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PodMonitor", "PrometheusRule"),
}


def answer(path: str) -> dict[str, Any] | None:
    """The document at a path, None if there is none."""
    path = path.partition("?")[0].strip("/")
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        groups = [
            {"name": each.partition("/")[0], "versions": [{"groupVersion": each, "version": "v1"}]}
            for each in KINDS
            if "/" in each
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = path.partition("/")[2]
    if version not in KINDS:
        return None
    resources = [
        {
            "name": f"{kind.lower()}s",
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": True,
            "verbs": ["create"],
        }
        for kind in KINDS[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = answer(self.path)
        raw = json.dumps(found or {"kind": "Status", "status": "Failure", "code": 404}).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def api_server() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
