"""Dashboard 12239 on a real Prometheus: each of its queries and variables has data on a node with dcgm's names."""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import fetch, prometheus

from .conftest import ParsedPage

PANELS = {
    # query, as in the panels, with both variables on All: how many series
    'DCGM_FI_DEV_GPU_TEMP{instance=~".+", gpu=~".+"}': 8,
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~".+", gpu=~".+"})': 1,
    'DCGM_FI_DEV_POWER_USAGE{instance=~".+", gpu=~".+"}': 8,
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~".+", gpu=~".+"})': 1,
    'DCGM_FI_DEV_SM_CLOCK{instance=~".+", gpu=~".+"} * 1000000': 8,
    'DCGM_FI_DEV_GPU_UTIL{instance=~".+", gpu=~"3"}': 1,
    'DCGM_FI_DEV_FB_USED{instance=~".+", gpu=~".+"}': 8,
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".+", gpu=~".+"}': 8,
}


@contextmanager
def serving(text: str) -> Iterator[int]:
    """A page for a scraper, on a free port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def asked(url: str, path: str, **arguments: str) -> Any:
    return json.loads(fetch(f"{url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"))["data"]


def test_every_query_of_the_official_dashboard_has_data(page: ParsedPage, tmp_path: Path) -> None:
    with serving(page.text) as port:
        config = ("global: {scrape_interval: 1s}\nscrape_configs:\n"
                  f"- {{job_name: dcgm, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n")  # fmt: skip
        with prometheus(config, tmp_path) as url:
            for _ in range(300):
                if asked(url, "query", query="up == 1")["result"]:
                    break
                time.sleep(0.05)
            for query, count in PANELS.items():
                assert len(asked(url, "query", query=query)["result"]) == count, query
            variable = {"match[]": "DCGM_FI_DEV_GPU_TEMP"}
            assert asked(url, "label/gpu/values", **variable) == [str(each) for each in range(8)]
            assert asked(url, "label/instance/values", **variable) == [f"127.0.0.1:{port}"]
            clock = asked(url, "query", query='DCGM_FI_DEV_SM_CLOCK{gpu="0"} * 1e6 == on () group_left () '
                          'coldplate_gpu_clock_hertz{gpu="0", domain="sm"}')  # fmt: skip
            assert len(clock["result"]) == 1
            types = {name: each[0]["type"] for name, each in asked(url, "metadata").items()}
            assert types["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "counter"
            assert types["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == types["DCGM_FI_DEV_XID_ERRORS"] == "gauge"
