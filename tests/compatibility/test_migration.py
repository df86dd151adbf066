"""The scrape job that `docs/install.md` gives to a site that moves, in a real Prometheus."""

import re
import time
from pathlib import Path

import yaml

from tests.screen.agents import serving
from tests.servers import need, prometheus, query

ROOT = Path(__file__).resolve().parents[2]
PAGE = b"""# TYPE coldplate_gpu_up gauge
coldplate_gpu_up{gpu="0"} 1
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40
"""
LEFT_OUT = "NOTHING shows here that a moving site's queries find both exporters"
SECONDS = 60


def test_old_names_keep_their_job_and_rules_still_know_our_agents(tmp_path: Path) -> None:
    """With `up` under an old job's name AgentDown would be silent, and each alert a second one beside the node's."""
    need("prometheus", left_out=LEFT_OUT)
    text = (ROOT / "docs" / "install.md").read_text()
    job = re.search(r"(?ms)^   ```yaml\n(   - job_name: coldplate\n.*?)^   ```$", text)
    assert job is not None
    (scrape,) = yaml.safe_load(job[1])
    with serving(lambda _: (200, PAGE)) as address:
        scrape["static_configs"] = [{"targets": [address]}]
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": [scrape]}
        with prometheus(yaml.safe_dump(config), tmp_path) as url:
            until = time.monotonic() + SECONDS
            while not query(url, "DCGM_FI_DEV_GPU_TEMP") and time.monotonic() < until:
                time.sleep(0.1)
            host = address.partition(":")[0]
            labels = [series["metric"] for series in query(url, '{__name__=~"DCGM_.*|coldplate_gpu_up|up"}')]
    assert {each["__name__"]: (each["job"], each["instance"]) for each in labels} == {
        "DCGM_FI_DEV_GPU_TEMP": ("dcgm-exporter", f"{host}:9400"),
        "coldplate_gpu_up": ("coldplate", address),
        "up": ("coldplate", address),
    }
