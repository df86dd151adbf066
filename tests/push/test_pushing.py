"""From the configuration to pushes: what is refused and why, and that an agent that pushes nothing carries nothing."""

import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from agent import __version__
from agent.config.reading import keys_for_a_restart, parse
from agent.config.schema import ConfigError
from agent.lib.threads import Threads
from agent.model import Instant, Node, Reading, Series
from agent.wiring import pushing
from agent.wiring.pushing import make_pushes
from agent.wiring.start_checks import check
from exporters.push.otlp_push import OtlpPush
from exporters.push.push_queue import PushFigures, PushGroup
from exporters.push.remote_write import RemoteWrite
from tests.daemon.conftest import RunningDaemon, Start, start
from tests.servers import free_port, need, prometheus, query, unmeasured

__all__ = ["start"]

ROOT = Path(__file__).resolve().parents[2]
GOOD = "push: {remote_write: {central: {url: 'https://mimir.example/api/v1/push'}}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("otlp: {url: 'http://h/w'}", "push.remote_write: 'otlp' is the name of the push to OpenTelemetry"),
        ("a/b: {url: 'http://h/w'}", "push.remote_write: 'a/b' names files and series; use 1 to 64 letters"),
        ("a: {}", "push.remote_write.a.url: is missing; give it"),
        ("a: {url: 'http://mimir'}", "push.remote_write.a: url 'http://mimir' has no path; add /api/v1/write"),
        ("a: {url: 'http://h/w', labels: {1x: y}}", "push.remote_write.a.labels.1x: '1x' is not a valid label name"),
        ("a: {url: 'http://h/w', interval: 500ms}", "push.remote_write.a.interval: 500ms is out of range"),
        ("a: {url: 'http://h/w', buffer: {directory: ''}}", "push.remote_write.a.buffer.directory: is empty"),
        ("a: {url: 'http://h/w', buffer: {directory: /x}}, b: {url: 'http://h/w', buffer: {directory: /x}}",
         "push.remote_write.b.buffer.directory: '/x' belongs to another receiver"),
        ("endpoint: 'http://host:4318'", "push.otlp: endpoint 'http://host:4318' has no path; add /v1/metrics"),
        ("endpoint: 'http://c/v1/metrics', username: x", "username and password_file belong together"),
        ("endpoint: 'https://c/v1/metrics', cert_file: x", "cert_file and key_file belong together"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_remedy(text: str, problem: str) -> None:
    section = "otlp" if text.startswith("endpoint") else "remote_write"
    with pytest.raises(ConfigError) as caught:
        check(parse(f"push: {{{section}: {{{text}}}}}\n", "c.yaml"))
    assert problem in str(caught.value)


def test_a_missing_extra_is_a_mistake_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("opentelemetry.no.such", "no_such_package.exporter"):
        monkeypatch.setattr(pushing, "SDK", missing)
        with pytest.raises(
            ConfigError, match="needs OpenTelemetry's packages, the extra otlp, which are missing; install with make"
        ):
            check(parse("push: {otlp: {endpoint: 'http://c/v1/metrics'}}\n", "c.yaml"))


def made(text: str) -> PushGroup | None:
    return make_pushes(parse(text, "c.yaml"), lambda: None, lambda: Instant(0.0, 0.0), Threads())


def test_the_resource_is_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(pushing, "MACHINE_ID", tmp_path / "machine-id")
    text = "{node: {name: n1}, push: {otlp: {endpoint: 'http://c/v1/metrics', attributes: {a.b: c}}}}"
    (push,) = made(text).pushes
    assert isinstance(push, OtlpPush)
    assert dict(push.maker.resource.attributes) == {
        "service.name": "coldplate", "service.version": __version__, "service.instance.id": "n1:19400",
        "host.name": "n1", "host.id": "0123456789abcdef0123456789abcdef", "a.b": "c",
    }  # fmt: skip


def test_labels_and_folder_come_from_the_configuration_and_a_drill_writes_nothing_to_the_node(tmp_path: Path) -> None:
    more = "labels: {job: gpus, site: north}, buffer: {max_size: 2MiB, max_age: 5m}"
    text = f"""
node: {{name: n1}}
state_dir: {tmp_path}
push: {{remote_write: {{central: {{url: "http://localhost:9/w", {more}}}}}}}
"""
    (push,) = made(text).pushes
    assert isinstance(push, RemoteWrite)
    assert push.settings.labels == {"instance": "n1:19400", "job": "gpus", "site": "north"}
    assert push.settings.folder == tmp_path / "push" / "central"
    assert (push.settings.keep, push.settings.age, push.settings.interval) == (2.0 * 2**20, 300.0, 15.0)
    (drill,) = made(f"backends: {{devices: synthetic}}\n{GOOD}").pushes
    assert isinstance(drill, RemoteWrite)
    assert drill.settings.folder is None
    assert made(f"backends: {{devices: replay}}\n{GOOD}") is None, "a replay pushes nothing"
    changed = parse(GOOD.replace("push'", "write'"), "c.yaml")
    assert keys_for_a_restart(parse(GOOD, "c.yaml"), changed) == ["push.remote_write"]


def test_nothing_is_loaded_where_nothing_is_pushed() -> None:
    told = (
        "import sys, agent.wiring.assembly, agent.wiring.pushing as p; from agent.config.schema import Config;"
        "assert p.make_pushes(Config(), None, None, None) is None;"
        "print([name for name in sys.modules if name.startswith(('exporters.push', 'opentelemetry'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, env=unmeasured(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


class IdlePush:
    def __init__(self, figures: PushFigures) -> None:
        self.figures = figures

    def start(self) -> None: ...

    def stop(self, seconds: float) -> None: ...


def test_the_series_of_pushes() -> None:
    one, other = PushFigures("a"), PushFigures("b", bytes=None, pending=None)
    one.samples, one.pending, one.oldest, one.dropped["expired"] = 5, 70, 95.0, 3
    other.success = 90.0
    series = PushGroup([IdlePush(one), IdlePush(other)], Threads())
    told = series.frame(Instant(1.0, 100.0)).readings
    assert Reading(Series(told[2].metric, Node(), (("push", "a"),)), 5.0) == told[2]
    values = {
        (each.metric.name.removeprefix("coldplate_push_"), *(v for _, v in each.labels)): each.value for each in told
    }
    assert values["pending_age_seconds", "a"] == 5.0
    assert values["pending_age_seconds", "b"] == 0.0
    assert values["pending_bytes", "a"] == 70
    assert ("pending_bytes", "b") not in values
    assert ("bytes_total", "b") not in values
    assert values["samples_dropped_total", "a", "expired"] == 3
    assert ("last_success_timestamp_seconds", "a") not in values
    assert values["last_success_timestamp_seconds", "b"] == 90.0
    assert series.frame(Instant(2.0, 101.0)).layout is series.frame(Instant(3.0, 102.0)).layout


# A real Prometheus as the receiver, away for a while, and an agent that is killed meanwhile.
CONFIG = """
backends: {{devices: synthetic, host: false}}
node: {{name: node-1}}
sampling: {{fast: 250ms, slow: 1s, cold: 2s}}
rules: {{files: []}}
recorder: {{history: 0s}}
state_dir: {folder}
push:
  remote_write:
    central: {{url: "http://localhost:{port}/api/v1/write", interval: 1s, labels: {{instance: node-1}}}}
"""


@pytest.mark.release  # two agents and a Prometheus; a machine that is slow samples less often
def test_an_outage_and_a_killed_agent_lose_only_what_was_never_sampled(start: Start, tmp_path: Path) -> None:
    executable, port = need("prometheus"), free_port()

    def begun() -> RunningDaemon:
        config = CONFIG.format(folder=tmp_path / "state", port=port)
        return start(config=config, environment=unmeasured(), forked=False)

    def pushed(daemon: RunningDaemon, what: str) -> float:
        return sum(daemon.family(f"coldplate_push_{what}", "push").values())

    first = begun()
    first.until("two pushes wait", lambda: pushed(first, "pending_age_seconds") > 1.5, 20)
    first.stop(signal.SIGKILL)
    second = begun()
    second.until("it waits, too", lambda: pushed(second, "failures_total") > 0, 20)
    with prometheus("", tmp_path, executable, "--web.enable-remote-write-receiver", port=port) as url:
        second.until("it has sent all", lambda: pushed(second, "pending_bytes") == 0, 40)
        second.until("Prometheus has the page", lambda: compared(second, url), 20)
        before, series = pushed(second, "samples_total"), len(second.page())
        # What only the killed one pushed, nobody can end: all that is stored must be of the second by now.
        second.until("two more", lambda: pushed(second, "samples_total") > before + 1.5 * series, 20)
        dropped = second.family("coldplate_push_samples_dropped_total", "reason")
        assert dropped == {"rejected": 0, "expired": 0, "overflow": 0, "damaged": 0}
        (ticks,) = query(url, "coldplate_ticks_total[10m]")
        values = [(float(at), float(value)) for at, value in ticks["values"]]
        (fall,) = (place for place, (one, next_) in enumerate(pairwise(values)) if next_[1] < one[1])
        assert fall >= 1, "what waited when the first was killed has come"
        runs = values[: fall + 1], values[fall + 1 :]
        assert all(next_[0] - one[0] < 1.6 for run in runs for one, next_ in pairwise(run))
        assert second.stop() == 0
        assert query(url, '{job="coldplate"}') == [], "a series that has ended is not shown for five minutes more"


def compared(daemon: RunningDaemon, url: str) -> bool:
    """Whether the stored series are those of the page. Values move on meanwhile; identity does not."""
    page = {
        identity({**dict(labels), "__name__": name, "instance": "node-1", "job": "coldplate"})
        for name, labels in daemon.page()
    }
    return page == {identity(each["metric"]) for each in query(url, '{job="coldplate"}')}


def identity(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    """An empty label is no label."""
    return frozenset(pair for pair in labels.items() if pair[1])
