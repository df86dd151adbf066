"""Builds the pushes from the configuration. What pushes is imported only where one is configured."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.config.schema import Config, ConfigError, OtlpConfig, parse_value
from agent.lib.http_target import HttpTarget
from agent.lib.textfile import SECRET, ReadError, read_text
from agent.lib.threads import Threads
from agent.model import Instant, Snapshot
from agent.wiring.identity import SCRAPE_JOB, drill_file, instance, login_of, node_name

if TYPE_CHECKING:
    from exporters.push.otlp_push import MetricsMaker
    from exporters.push.push_queue import PushGroup
    from exporters.push.remote_write import RemoteWriteSettings

MACHINE_ID = Path("/etc/machine-id")
SDK = "opentelemetry.exporter.otlp.proto.http"
PACKAGES = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"

log = logging.getLogger("coldplate.push")


def make_pushes(
    config: Config, latest: Callable[[], Snapshot | None], now: Callable[[], Instant], threads: Threads
) -> PushGroup | None:
    """Return None where nothing is to be pushed.

    `latest` gives the series that a page would show. Raises ConfigError.
    """
    targets, collector = check_pushes(config)
    if not targets and collector is None:
        return None
    if config.backends.devices in ("replay", "trace"):
        log.info("push disabled: a %s is not pushed", config.backends.devices)
        return None
    from exporters.push.push_queue import Push, PushGroup
    from exporters.push.remote_write import RemoteWrite

    settings = [_remote_write(config, name, target) for name, target in targets.items()]
    pushes: list[Push] = [RemoteWrite(each, latest, now, threads) for each in settings]
    if config.push.otlp is not None and collector is not None:
        from exporters.push.otlp_push import OtlpPush

        otlp = config.push.otlp
        pushes.append(OtlpPush(collector, otlp.interval, _metrics_maker(config, otlp), latest, now, threads=threads))
    return PushGroup(pushes, threads)


def check_pushes(config: Config) -> tuple[dict[str, HttpTarget], HttpTarget | None]:
    """Return where to push by remote write, by name, and the collector if there is one. Raises ConfigError."""
    otlp = config.push.otlp
    return _remote_write_targets(config), None if otlp is None else _collector(otlp)


def _collector(otlp: OtlpConfig) -> HttpTarget:
    target = parse_value("push.otlp", HttpTarget, otlp.endpoint, timeout=otlp.timeout, **login_of(otlp))
    if not target.path:
        raise ConfigError(f"push.otlp: endpoint {target.shown!r} has no path; add /v1/metrics")
    try:
        present = importlib.util.find_spec(SDK) is not None
    except ModuleNotFoundError:
        present = False
    if not present:
        remedy = f"install with make install EXTRAS='top otlp', or add {PACKAGES} by pip"
        raise ConfigError(f"push.otlp: needs OpenTelemetry's packages, the extra otlp, which are missing; {remedy}")
    return target


def _metrics_maker(config: Config, otlp: OtlpConfig) -> MetricsMaker:
    """Return what says whose metrics they are, by the names of the semantic conventions for resources."""
    from exporters.push.otlp_push import MetricsMaker

    resource = {
        "service.name": SCRAPE_JOB,
        "service.version": __version__,
        "service.instance.id": instance(config),
        "host.name": node_name(config),
        **_machine_id(),
        **otlp.attributes,
    }
    return MetricsMaker(resource, __version__)


def _machine_id() -> dict[str, str]:
    """Return the host's id as OpenTelemetry's conventions define it on Linux; empty on a host without it."""
    try:
        text = read_text(MACHINE_ID, SECRET).strip()
    except ReadError:
        return {}
    return {"host.id": text} if text.isalnum() else {}


def _remote_write_targets(config: Config) -> dict[str, HttpTarget]:
    targets = {}
    for name, each in config.push.remote_write.items():
        key = f"push.remote_write.{name}"
        target = parse_value(key, HttpTarget, each.url, timeout=each.timeout, **login_of(each))
        if not target.path:
            paths = "/api/v1/write (Prometheus, VictoriaMetrics) or /api/v1/push (Mimir)"
            raise ConfigError(f"{key}: url {target.shown!r} has no path; add {paths}")
        targets[name] = target
    return targets


def _remote_write(config: Config, name: str, target: HttpTarget) -> RemoteWriteSettings:
    from exporters.push.remote_write import RemoteWriteSettings

    each = config.push.remote_write[name]
    labels = {"instance": instance(config), "job": SCRAPE_JOB, **each.labels}
    buffer = each.buffer
    if buffer.directory is not None:
        folder: Path | None = Path(buffer.directory)
    elif (folder := drill_file(config, "push")) is not None:
        folder /= name
    else:
        log.info("push %s: no state directory: unsent samples stay in memory, a restart drops them", name)
    return RemoteWriteSettings(name, target, each.interval, labels, folder, buffer.max_size, buffer.max_age)
