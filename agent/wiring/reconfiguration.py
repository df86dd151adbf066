"""Reloads the configuration and applies it to the running parts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.config.schema import Config, Section
from agent.config.schema_fields import fields_of
from agent.daemon.rule_manager import AlertingSettings, RuleManager
from agent.daemon.sampling import SamplingLoop
from agent.health.expectation_series import ExpectationSeries
from agent.model import Lane
from agent.rack.monitor import RackMonitor
from agent.rack.rack_options import RackOptions
from agent.sampler.periods import slowest
from agent.wiring.alerting import Receivers, load_alerting
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.expectations import load_choice
from agent.wiring.peering import load_rack
from agent.wiring.protecting import Protection, load_terms
from agent.wiring.rule_ranges import ranges_of
from agent.wiring.sources import load_settings
from agent.wiring.start_checks import check
from agent.wiring.web import Exposed, neighbours_of

log = logging.getLogger("coldplate")


class Reconfiguration:
    """Has the parts that can be changed, and the configuration that they were started with."""

    def __init__(
        self,
        options: CommandLineOptions,
        read_config: Callable[[], Config],
        booted: Config,
        alerting: AlertingSettings,
        receivers: Receivers,
        exposed: Exposed,
        sampling: SamplingLoop,
        rack: RackMonitor,
        rules: RuleManager,
        expectations: ExpectationSeries,
        protection: Protection,
    ) -> None:
        self._options = options
        self._read_config = read_config
        self._booted = booted
        self._alerting = alerting
        self._receivers = receivers
        self._exposed = exposed
        self._sampling = sampling
        self._rack = rack
        self._rules = rules
        self._expectations = expectations
        self._protection = protection

    def __call__(self) -> None:
        """Reload. Raises ConfigError, and then nothing has changed."""
        config = self._read_config()
        selection = check(config)
        alerting = load_alerting(config, self._options.folder, self._receivers, self._alerting.rules)
        settings = load_settings(config, ranges_of(alerting.rules.groups))
        rack = rack_options(config, self._options)
        expectations = load_choice(config, self._options.folder)
        terms = load_terms(config, self._protection)
        for key in keys_for_a_restart(self._booted, config):
            log.warning("%s has changed: the change takes effect at the next restart", key)
        if selection.terms != self._exposed.selection.terms:
            self._exposed.selection = selection
        self._exposed.neighbours = neighbours_of(config)
        self._sampling.reconfigure(settings)
        self._rack.reconfigure(rack)
        self._rules.reconfigure(alerting)
        self._expectations.reconfigure(expectations)
        self._protection.enforce(terms)
        self._alerting = alerting


def rack_options(config: Config, options: CommandLineOptions) -> RackOptions:
    """The rack's part of the configuration, with the patience of the slowest sampling. Raises ConfigError."""
    return load_rack(config, options.folder, slowest(load_settings(config)).patience(Lane.FAST))


def keys_for_a_restart(old: Section, new: Section, path: str = "") -> list[str]:
    """Keys that differ but that a reload cannot apply: they determine processes, sockets and files."""
    changed = []
    for field in fields_of(type(old)).values():
        before, after = getattr(old, field.attribute), getattr(new, field.attribute)
        if field.key is not None and field.key.restart and before != after:
            changed.append(f"{path}{field.name}")
        elif isinstance(before, Section) and isinstance(after, Section):
            changed += keys_for_a_restart(before, after, f"{path}{field.name}.")
    return changed
