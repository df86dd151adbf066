"""A fleet on the loopback interface: a simulated site, and both ways to run its servers at once, from packaging/fleet.

Two Prometheus share the racks and write what is worth keeping to one store, over which a vmalert evaluates the global
rules. Two vmagents share the nodes and write to the other store, over which another vmalert evaluates everything. All
of them send to one Alertmanager: what both find must be one alert. Minutes of rules and waits are seconds here, and
nothing else differs.
"""

import re
import shutil
import subprocess
import sys
from typing import Any

import yaml

from tests.deployment.fleet_files import FLEET, ROOT
from tests.lab.fleet.engines import Engine, Engines, Inbox

SCRAPE = "5s"
RACK, RACKS = 4, 4
_PACE = {"15s": SCRAPE, "30s": SCRAPE, "1m": "10s", "2m": "25s", "5m": "30s"}

Document = dict[str, Any]


class Fleet:
    """All programs of a fleet, started in the order in which they need each other."""

    def __init__(self, engines: Engines, inbox: Inbox, lost: str, at: float) -> None:
        """Rack `lost` loses its power so many seconds after the site starts."""
        self._engines, self._folder = engines, engines.folder
        self.alertmanager = engines.alertmanager(inbox.url, group_wait=SCRAPE)
        self._rules("shard-rules", "shard", packed=True)
        self._rules("global-rules", "global", packed=False)
        self._rules("cluster-rules", "clusters", packed=False)
        self.stores = [engines.store(f"store-{number}", "-search.latencyOffset=1s") for number in range(2)]
        self.site = self._site(lost, at)
        self.shards = [self._shard(number) for number in range(2)]
        self.scrapers = [self._scraper(number) for number in range(2)]
        self.vmalerts = [
            self._vmalert(0, "shard-rules", "global-rules"),
            self._vmalert(1, "cluster-rules", "global-rules"),
        ]

    def _site(self, lost: str, at: float) -> Engine:
        return self._engines.simulation(
            "--nodes", str(RACK * RACKS), "--nodes-per-rack", str(RACK), "--nodes-per-job", "8", "--cluster", "main",
            "--rack-budget", "40.8kW", "--fault", f"power-loss@{lost},at={at:.0f}s", "--metrics.profile", "lean",
        )  # fmt: skip

    def _rules(self, name: str, own: str, *, packed: bool) -> None:
        out = self._folder / name
        out.mkdir()
        if packed:
            command = [sys.executable, "-m", "agent.cli", "render", "rules", "--for-shard", "--output", str(out)]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(FLEET / "rules" / f"{own}.rules.yml", out)
        for path in out.glob("*.yml"):
            path.write_text(re.sub(r"\b(interval|for): (\w+)$", _hurried, path.read_text(), flags=re.MULTILINE))

    def _shard(self, number: int) -> Engine:
        config = yaml.safe_load((FLEET / "prometheus" / "shard.yml").read_text())
        self._hurry(config)
        config["global"]["external_labels"]["shard"] = str(number)
        config["rule_files"] = ["shard-rules/*.yml"]
        (scrape,) = config["scrape_configs"]
        scrape["relabel_configs"][-1]["regex"] = str(number)
        config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [_address(self.alertmanager)]}]}]
        config["remote_write"][0]["url"] = f"{self.stores[1].url}/api/v1/write"
        return self._engines.prometheus(f"prometheus-{number}", yaml.safe_dump(config))

    def _scraper(self, number: int) -> Engine:
        config = yaml.safe_load((FLEET / "vmagent" / "scrape.yml").read_text())
        self._hurry(config)
        path = self._folder / "scrape.yml"
        path.write_text(yaml.safe_dump(config))
        return self._engines.scraper(
            f"vmagent-{number}", path, "-promscrape.cluster.membersCount=2", f"-promscrape.cluster.memberNum={number}",
            f"-remoteWrite.url={self.stores[0].url}/api/v1/write",
            f"-remoteWrite.urlRelabelConfig={FLEET / 'vmagent' / 'keep.yml'}",
        )  # fmt: skip

    def _hurry(self, config: Document) -> None:
        """The simulated site as targets, in place of files, and its own pace."""
        config["global"] |= {"scrape_interval": SCRAPE}
        if "evaluation_interval" in config["global"]:
            config["global"]["evaluation_interval"] = SCRAPE
        scrape = config["scrape_configs"][0]
        del scrape["file_sd_configs"]
        scrape["http_sd_configs"] = [{"url": f"{self.site.url}/sd"}]
        machine = {"action": "labeldrop", "regex": "topology"}
        scrape["relabel_configs"] = [machine, *scrape.get("relabel_configs", ())]

    def _vmalert(self, number: int, *rules: str) -> Engine:
        return self._engines.vmalert(
            f"vmalert-{number}", self.stores[number], (f"{self._folder / each}/*.yml" for each in rules),
            f"-notifier.url={self.alertmanager.url}", "-external.label=cluster=main", f"-evaluationInterval={SCRAPE}",
        )  # fmt: skip


def _hurried(found: re.Match[str]) -> str:
    return f"{found[1]}: {_PACE.get(found[2], found[2])}"


def _address(engine: Engine) -> str:
    return engine.url.removeprefix("http://")
