"""Builds the rule engine and the receivers from the configuration, and finds how slowly rules let each lane be read."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path

from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.config.checks import base_url
from agent.config.reading import with_places
from agent.config.schema import Config, ConfigError, RackConfig, ReceiverConfig, parse_value
from agent.daemon.alert_store import AlertStateStore
from agent.daemon.hub import Hub
from agent.daemon.rule_manager import AlertingSettings, RuleManager
from agent.lib.http_target import HttpTarget
from agent.lib.state_files import StateFiles, clear_unfinished
from agent.lib.threads import Threads
from agent.model import LANES, Instant, Lane, Reading
from agent.sampler.schedule import Ranges
from agent.wiring.identity import (
    drill_file,
    external_labels,
    external_url,
    login_of,
    rack_name,
    serves_tls,
    source_of,
    target_labels,
)
from alerts import packs
from alerts.engine import Ruleset
from alerts.notify.alertmanager import Alertmanager
from alerts.notify.delivery import HttpReceiver
from alerts.notify.log import LogReceiver, find_journal
from alerts.notify.receiver import Receiver
from alerts.notify.webhook import Webhook
from alerts.overrides import OverrideError, apply
from alerts.promql import Selector
from alerts.promql.labels import METRIC_NAME, LimitError, make_labels, match_all, only_metric_name
from alerts.rule_evaluator import TemplateContext
from alerts.rulefile import RuleFile, RuleFileError, RuleGroup, TooManyRulesError
from alerts.windows.needs import selectors_of

ReceiverKind = type[HttpReceiver]
"""The kind of a receiver; its `name` is the key below `notify` with the addresses of such receivers."""


RECEIVERS: tuple[ReceiverKind, ...] = (Alertmanager, Webhook)


def ranges_of(groups: Iterable[RuleGroup]) -> Ranges:
    """Return what the rules of these groups read of our metrics; instant selectors see a series while it is shown."""
    shortest: dict[Lane, float] = {}
    for group in groups:
        for rule in group.rules:
            for selector in selectors_of(rule):
                if selector.history > 0:
                    for lane in _lanes(selector):
                        shortest[lane] = min(shortest.get(lane, inf), selector.history)
    return Ranges(*(shortest.get(lane, inf) for lane in LANES))


def _lanes(selector: Selector) -> set[Lane]:
    """Return the lanes of all metrics that a selector may select."""
    name = only_metric_name(selector.matchers)
    if name is not None:
        return {BY_NAME[name].lane} if name in BY_NAME else set()
    naming = tuple(matcher for matcher in selector.matchers if matcher.name == METRIC_NAME)
    try:
        return {row.lane for name, row in BY_NAME.items() if match_all(naming, make_labels({}, name))}
    except LimitError:
        return set(Lane)


log = logging.getLogger("coldplate.rules")

Key = tuple[ReceiverKind, HttpTarget, str]


class Receivers:
    """Makes receivers; for the same address it returns the same one again, with what is queued in it."""

    def __init__(self, clock: Callable[[], Instant], threads: Threads | None = None) -> None:
        self._clock = clock
        self._threads = threads or Threads()
        self._log = LogReceiver(find_journal(os.environ))
        self._known: dict[Key, HttpReceiver] = {}

    def make(self, config: Config, external_url: str) -> tuple[Receiver, ...]:
        """Return the receivers that the configuration names. Raises ConfigError."""
        notify = config.notify
        keys = [key for kind in RECEIVERS for key in _keys(kind, getattr(notify, kind.name), external_url)]
        self._known = {key: self._known.get(key) or self._begin(*key) for key in keys}
        return (*((self._log,) if notify.log else ()), *self._known.values())

    def _begin(self, kind: ReceiverKind, target: HttpTarget, external_url: str) -> HttpReceiver:
        return parse_value(f"notify.{kind.name}", kind, target, self._clock, external_url, threads=self._threads)


@with_places
def check_receivers(config: Config) -> None:
    """Refuse addresses and logins that no receiver could use; none is made. Raises ConfigError."""
    for kind in RECEIVERS:
        _keys(kind, getattr(config.notify, kind.name), external_url(config))


def _keys(kind: ReceiverKind, config: ReceiverConfig, external_url: str) -> list[Key]:
    keys: list[Key] = []
    for number, url in enumerate(config.urls):
        try:
            keys.append((kind, HttpTarget(url, timeout=config.timeout, **login_of(config)), external_url))
        except ValueError as error:
            problem = str(error).removeprefix("url").lstrip(": ")
            raise ConfigError(f"notify.{kind.name}.urls[{number}]: {problem}") from error
    return keys


def load_rules(config: Config, folder: Path) -> Ruleset:
    """Return the configured rules with the configured changes; relative paths start at `folder`. Raises ConfigError."""
    return make_ruleset(config, load_files(config, folder))


def make_ruleset(config: Config, files: tuple[RuleFile, ...]) -> Ruleset:
    context = TemplateContext(external_labels(config), external_url(config))
    return Ruleset(files, config.rules.interval, context, int(config.rules.memory))


@with_places
def load_files(config: Config, folder: Path) -> tuple[RuleFile, ...]:
    """Return the rule files with the configured changes. Raises ConfigError."""
    rules = config.rules
    try:
        files = packs.load_all(rules.files, folder, rules.interval)
        if rules.runbook_base is not None:
            files = packs.lead_to(base_url(rules.runbook_base), files)
        elif serves_tls(config):
            files = packs.over_tls(files)
        return apply(files, rules.disable, rules.override, default_step=rules.interval)
    except TooManyRulesError as error:
        raise ConfigError(f"rules.files: {error}") from error
    except RuleFileError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise ConfigError(f"rules.files: invalid rule file:{problems}") from error
    except OverrideError as error:
        raise ConfigError(f"rules.{error}") from error
    except packs.EntryError as error:
        raise ConfigError(f"rules.files[{rules.files.index(error.entry)}]: {error}") from error
    except ValueError as error:
        raise ConfigError(f"rules.files: {error}") from error


def _of_the_node(rules: Ruleset, config: Config) -> Ruleset:
    """Return the rules, less those about racks unless one is configured, or a scenario or recording may have one."""
    sources = config.backends
    if rack_name(config) or config.rack != RackConfig() or sources.scenario or sources.devices == "replay":
        return rules
    return replace(rules, files=tuple(file for file in rules.files if not packs.is_about_racks(file.path)))


@with_places
def load_alerting(
    config: Config, folder: Path, receivers: Receivers, running: Ruleset | None = None
) -> AlertingSettings:
    """Return rules and receivers; warnings of `running` rules are not logged again. Raises ConfigError."""
    rules = _of_the_node(load_rules(config, folder), config)
    made_receivers = receivers.make(config, external_url(config))
    _log_warnings(rules.files, running.files if running else ())
    labels = make_labels(external_labels(config))
    return AlertingSettings(rules, made_receivers, config.notify.resend, labels, config.notify.inhibition)


def _log_warnings(files: Sequence[RuleFile], running: Sequence[RuleFile]) -> None:
    logged = {warning for file in running for warning in file.warnings}
    for warning in (warning for file in files for warning in file.warnings if warning not in logged):
        facts = {"file": warning.file, "line": warning.line, "rule": warning.where, "problem": warning.text}
        log.warning("rule file loaded with a warning", extra={"facts": facts})


def make_rule_manager(
    config: Config,
    alerting: AlertingSettings,
    hub: Hub,
    files: StateFiles,
    *,
    foreign: Callable[[Instant], Sequence[Reading]],
    threads: Threads,
    now: Callable[[], Instant],
) -> RuleManager:
    """Return the rule manager, with what an earlier run saved if there is a state directory."""
    path = drill_file(config, "alerts.state")
    if path is None:
        store = None
        if config.rules.files:
            log.info("no state directory: a restart loses the state of alerts")
    else:
        clear_unfinished(path.parent)
        store = AlertStateStore(path.parent, source_of(config), files)
    return RuleManager(alerting, target_labels(config), now, hub, store=store, foreign=foreign, threads=threads)
