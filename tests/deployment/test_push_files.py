"""packaging/push: what scrapes coldplate on a node that no server can reach loses nothing while the server is away."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from tests.lab.fleet.engines import HTTP, WEB, Engine, Engines, program
from tests.servers import free_port

StartSender = Callable[[Engines, Engine, int], None]
FOLDER = Path(__file__).resolve().parents[2] / "packaging" / "push"
SCRAPE_SECONDS = 15.0
AWAY_SECONDS = 300.0
SETTLE_SECONDS = 180.0
"""How long the sender may take to deliver what waited: it repeats with pauses of up to a minute."""


def scrape_section(name: str) -> list[dict[str, object]]:
    document = yaml.safe_load((FOLDER / name).read_text())
    if name.startswith("otel"):
        sections: list[dict[str, object]] = document["receivers"]["prometheus"]["config"]["scrape_configs"]
        return [{key: value for key, value in section.items() if key != "scrape_interval"} for section in sections]
    return list(document["scrape_configs"])


def test_all_three_scrape_the_agent_alike() -> None:
    sections = [scrape_section(path.name) for path in sorted(FOLDER.iterdir())]
    assert len(sections) == 3
    assert sections[0] == sections[1] == sections[2]


def test_every_component_of_the_collector_is_defined() -> None:
    document = yaml.safe_load((FOLDER / "otel-collector.yaml").read_text())
    pipeline = document["service"]["pipelines"]["metrics"]
    assert set(document["service"]["extensions"]) == set(document["extensions"])
    assert set(pipeline["receivers"]) == set(document["receivers"])
    assert set(pipeline["exporters"]) == set(document["exporters"])
    assert document["exporters"]["otlphttp"]["sending_queue"]["storage"] in document["extensions"]


def adapted(name: str, engines: Engines, agent: Engine, receiver_port: int) -> Path:
    """Write the shipped file with this agent and this receiver in place of those that it names."""
    text = (FOLDER / name).read_text().replace("localhost:19400", agent.url.removeprefix("http://"))
    text = text.replace("https://mimir.example/api/v1/push", f"http://127.0.0.1:{receiver_port}/api/v1/write")
    path = engines.folder / name
    path.write_text(text)
    return path


def start_prometheus_agent(engines: Engines, agent: Engine, receiver_port: int) -> None:
    path = adapted("prometheus-agent.yml", engines, agent, receiver_port)
    old = (
        "2."
        in subprocess.run([program("prometheus"), "--version"], capture_output=True, text=True, check=True).stdout[:24]
    )
    mode = "--enable-feature=agent" if old else "--agent"
    storage = f"--storage.agent.path={engines.folder / 'agent-data'}"
    engines.start("sender", [program("prometheus"), mode, f"--config.file={path}", storage], WEB, "/-/ready")


def start_vmagent(engines: Engines, agent: Engine, receiver_port: int) -> None:
    path = adapted("vmagent.yml", engines, agent, receiver_port)
    words = [
        program("vmagent"),
        f"-promscrape.config={path}",
        f"-remoteWrite.tmpDataPath={engines.folder / 'queue'}",
        f"-remoteWrite.url=http://127.0.0.1:{receiver_port}/api/v1/write",
        "-remoteWrite.maxRowsPerBlock=2000",
        "-remoteWrite.maxDiskUsagePerURL=256MiB",
        "-remoteWrite.queues=1",
    ]
    engines.start("sender", words, HTTP, "/health")


def start_receiver(engines: Engines, port: int) -> Engine:
    return engines.prometheus("receiver", "", "--web.enable-remote-write-receiver", port=port)


def stop(engine: Engine) -> None:
    process = psutil.Process(engine.process.pid)
    process.terminate()
    with suppress(psutil.NoSuchProcess):
        process.wait(30)


def sample_times(receiver: Engine, seconds: float) -> list[float]:
    """Return the times of the samples of one counter in the last `seconds`."""
    series = receiver.ask(f'coldplate_ticks_total{{instance="NODE:19400"}}[{round(seconds)}s]')
    return [float(at) for at, _ in series[0]["values"]] if series else []


@pytest.mark.release
@pytest.mark.parametrize("start_sender", [start_prometheus_agent, start_vmagent])
def test_a_server_that_is_away_for_five_minutes_loses_nothing(start_sender: StartSender, tmp_path: Path) -> None:
    with Engines(tmp_path) as engines:
        words = [sys.executable, "-m", "agent.cli", "run", "--scenario", "healthy-training"]
        agent = engines.start("agent", words, WEB, "/-/ready")
        port = free_port()
        receiver = start_receiver(engines, port)
        start_sender(engines, agent, port)
        began = time.time()
        while not sample_times(receiver, 60):
            assert time.time() - began < 60, "the receiver got nothing in the first minute"
            time.sleep(1)
        stop(receiver)
        time.sleep(AWAY_SECONDS)
        back = time.time()
        receiver = start_receiver(engines, port)
        while not (times := sample_times(receiver, 900)) or times[-1] < back + SCRAPE_SECONDS:
            assert time.time() - back < SETTLE_SECONDS, "what waited did not arrive"
            time.sleep(2)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert times[-1] - times[0] > AWAY_SECONDS
        assert max(gaps) < 1.5 * SCRAPE_SECONDS
