"""Reloads the configuration and applies it to the running parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.config.reading import fields_of
from agent.config.schema import Config, Section
from agent.daemon.rule_manager import AlertingSettings, RuleManager
from agent.daemon.sampling import SamplingLoop
from agent.health.examination import ExpectationSeries
from agent.rack.monitor import RackMonitor
from agent.wiring.alerting import Receivers, load_alerting, ranges_of
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.peering import load_rack
from agent.wiring.sources import load_settings
from agent.wiring.start_checks import check, load_choice
from agent.wiring.web_serving import Exposed, load_terms, neighbours_of

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebWatch

log = logging.getLogger("coldplate")


def reloading(
    read_config: Callable[[], Config],
    booted: Config,
    options: CommandLineOptions,
    alerting: AlertingSettings,
    receivers: Receivers,
    *,
    exposed: Exposed,
    sampling: SamplingLoop,
    rack: RackMonitor,
    rules: RuleManager,
    expectations: ExpectationSeries,
    watch: WebWatch | None,
) -> Callable[[], None]:
    """Return what reloads the configuration. It raises ConfigError, and then nothing has changed.

    `booted` is the configuration that the agent was started with, and `alerting` what is in force of it.
    """
    running = alerting.rules

    def reload() -> None:
        nonlocal running
        config = read_config()
        selection = check(config)
        new = load_alerting(config, options.folder, receivers, running)
        settings = load_settings(config, ranges_of(new.rules.groups))  # not slower than the rules can bear
        of_rack, choice = load_rack(config, options.folder), load_choice(config, options.folder)
        terms = None if watch is None else load_terms(config, watch)
        # All of it can be used: from here on nothing fails.
        for key in keys_for_a_restart(booted, config):
            log.warning("%s has changed: the change takes effect at the next restart", key)
        exposed.expose(selection, neighbours_of(config))
        running = new.rules
        sampling.reconfigure(settings)
        rules.reconfigure(new)
        rack.reconfigure(of_rack)
        expectations.reconfigure(choice)
        if watch is not None and terms is not None:
            watch.enforce(terms)

    return reload


def keys_for_a_restart(old: Section, new: Section, path: str = "") -> list[str]:
    """Return keys that differ but that a reload cannot apply: they determine processes, sockets and files."""
    changed = []
    for field in fields_of(type(old)).values():
        before, after = getattr(old, field.attribute), getattr(new, field.attribute)
        if field.key is not None and field.key.restart and before != after:
            changed.append(f"{path}{field.name}")
        elif isinstance(before, Section) and isinstance(after, Section):
            changed += keys_for_a_restart(before, after, f"{path}{field.name}.")
    return changed
