"""What the configuration says of rules and of who is told about alerts, made into the parts that do it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.config.schema import Config, ConfigError, OverrideConfig, ReceiverConfig
from agent.config.values import base_url
from agent.lib.threads import Threads
from agent.model import Instant, Labels
from alerts import packs
from alerts.engine import Ruleset
from alerts.group import Surroundings
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.journal import find_journal
from alerts.notify.log import LogReceiver
from alerts.notify.receiver import Receiver
from alerts.notify.target import Target
from alerts.notify.webhook import Webhook
from alerts.overrides import Override, OverrideError, apply
from alerts.promql.labels import make_labels
from alerts.rulefile import RuleFile, RuleFileError
from alerts.runbook_links import lead_to

log = logging.getLogger("coldplate.rules")

SCRAPE_JOB = "coldplate"
"""The job that the Prometheus configuration in the documentation scrapes this agent with."""

Key = tuple[type, Target, str]


@dataclass(frozen=True, slots=True)
class Alerting:
    """All that the configuration says of rules and of who is told; `resend` in seconds."""

    rules: Ruleset
    receivers: tuple[Receiver, ...]
    resend: float
    external_labels: Labels


class Receivers:
    """Makes receivers, and gives the same one again for the same address, with what waits in it."""

    def __init__(self, clock: Callable[[], Instant], threads: Threads | None = None) -> None:
        self._clock = clock
        self._threads = threads or Threads()
        self._log = LogReceiver(find_journal(os.environ))
        self._known: dict[Key, Alertmanager | Webhook] = {}

    def make(self, config: Config, external_url: str) -> tuple[Receiver, ...]:
        """The receivers that the configuration names. Raises ConfigError."""
        notify = config.notify
        keys = [
            *_keys("alertmanager", Alertmanager, notify.alertmanager, external_url),
            *_keys("webhook", Webhook, notify.webhook, external_url),
        ]
        made = {key: self._known.get(key) or self._begin(key) for key in keys}
        self._known = made
        return (*((self._log,) if notify.log else ()), *made.values())

    def _begin(self, key: Key) -> Alertmanager | Webhook:
        kind, target, external_url = key
        try:
            receiver: Alertmanager | Webhook = kind(target, self._clock, external_url, threads=self._threads)
        except ValueError as error:
            raise ConfigError(f"notify.{kind.__name__.lower()}: {error}") from error
        return receiver


def _keys(name: str, kind: type, config: ReceiverConfig, external_url: str) -> list[Key]:
    common = msgspec.structs.asdict(config)
    urls = common.pop("urls")
    keys: list[Key] = []
    for url in urls:
        try:
            keys.append((kind, Target(url, **common), external_url))
        except ValueError as error:
            raise ConfigError(f"notify.{name}: {error}") from error
    return keys


def load_rules(config: Config, folder: Path, running: Ruleset | None = None) -> Ruleset:
    """The rules of the configuration, changed as it wants; relative paths begin at `folder`. Raises ConfigError."""
    return Ruleset(
        load_files(config, folder, running),
        config.rules.interval,
        Surroundings(external_labels(config), external_url(config)),
        int(config.rules.memory),
    )


def load_files(config: Config, folder: Path, running: Ruleset | None = None) -> tuple[RuleFile, ...]:
    """The rule files, with what the configuration changes in them. Raises ConfigError."""
    rules = config.rules
    kept = running.files if running is not None and running.interval == rules.interval else ()
    try:
        files = packs.load_all(rules.files, folder, rules.interval, kept)
        if rules.runbook_base is not None:
            files = lead_to(base_url(rules.runbook_base), files)
        overrides = {name: _override(each) for name, each in rules.override.items()}
        return apply(files, rules.disable, overrides, default_step=rules.interval)
    except RuleFileError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise ConfigError(f"rules.files: a rule file cannot be used:{problems}") from error
    except OverrideError as error:
        raise ConfigError(f"rules.{error}") from error
    except ValueError as error:
        raise ConfigError(f"rules.files: {error}") from error


def _override(config: OverrideConfig) -> Override:
    return Override(
        hold=config.hold,
        keep=config.keep_firing_for,
        labels=config.labels,
        annotations=config.annotations,
        thresholds=tuple(config.thresholds.items()),
        expr=config.expr,
    )


def node_name(config: Config) -> str:
    return config.node.name or socket.gethostname()


def target_labels(config: Config) -> Labels:
    """The labels that a Prometheus server would give this agent: rules see on the node what they see there."""
    return make_labels({"instance": instance(config), "job": SCRAPE_JOB})


def instance(config: Config) -> str:
    """Host and port, as a Prometheus server names the target that it scrapes by the host's name."""
    port = config.web.listen[0].rpartition(":")[2]
    return f"{node_name(config)}:{port}" if port not in ("", "0") else node_name(config)


def external_url(config: Config) -> str:
    """Where the agent's own pages are."""
    return f"http://{instance(config)}"


def external_labels(config: Config) -> dict[str, str]:
    """The labels that alerts get when they leave the node: where it stands, and what the configuration adds."""
    node = {"cluster": config.node.cluster or "", "rack": config.node.rack or config.rack.name or ""}
    return {name: value for name, value in {**node, **config.notify.labels}.items() if value}


def load_alerting(config: Config, folder: Path, receivers: Receivers, running: Ruleset | None = None) -> Alerting:
    """Everything at once; what is `running` need not be compiled again. Raises ConfigError."""
    rules = load_rules(config, folder, running)
    made = receivers.make(config, external_url(config))
    _tell(rules.files, running.files if running else ())
    return Alerting(rules, made, config.notify.resend, make_labels(external_labels(config)))


def _tell(files: Sequence[RuleFile], running: Sequence[RuleFile]) -> None:
    """Say once what is unwise in the rule files that are loaded."""
    told = {warning for file in running for warning in file.warnings}
    for warning in (warning for file in files for warning in file.warnings if warning not in told):
        facts = {"file": warning.file, "line": warning.line, "rule": warning.where, "problem": warning.text}
        log.warning("a rule file is loaded that has something unwise in it", extra={"facts": facts})


def source_of(config: Config) -> str:
    """Which devices alerts are about: those of a drill are not the node's."""
    backends = config.backends
    return f"synthetic {backends.scenario or ''}".strip() if backends.devices == "synthetic" else "devices"
