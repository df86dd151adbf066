"""Against programs that nobody here wrote: a real Prometheus, promtool."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers import fetch, free_port, need, program


def test_promtool_finds_nothing_wrong_and_a_real_prometheus_scrapes_it(start, tmp_path: Path) -> None:
    prometheus, promtool = need("prometheus"), need("promtool")
    daemon = start("--scenario", "straggler", config="sampling: {fast: 250ms, slow: 1s, cold: 2s}\n")
    page = daemon.get()
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        "  - job_name: coldplate\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{daemon.port}']}}]\n"
    )
    command = [
        prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip

    def query(expression: str) -> list[dict[str, Any]]:
        text = fetch(f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        return json.loads(text)["data"]["result"]

    with program(command, f"http://127.0.0.1:{port}/-/ready", tmp_path / "prometheus.log"):
        daemon.until("two scrapes", lambda: bool(query("rate(coldplate_gpu_energy_joules_total[5s]) > 0")), 15)
        assert len(query("coldplate_gpu_up == 1")) == 8
        assert query('up{job="coldplate"}')[0]["value"][1] == "1"
        joined = query("coldplate_gpu_power_watts * on (gpu, uuid) group_left (job_id) coldplate_gpu_job_info")
        assert len(joined) == 8
        scraped = query("scrape_samples_scraped")[0]["value"][1]
        assert int(scraped) == sum(not line.startswith("#") for line in daemon.get().splitlines())
