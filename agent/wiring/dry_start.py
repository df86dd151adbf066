"""Runs the checks of a start without starting, to validate a configuration before it is used."""

from __future__ import annotations

from pathlib import Path

from agent.config.reading import with_places
from agent.config.schema import Config
from agent.lib.clock import clock
from agent.wiring.alerting import check_receivers, load_rules
from agent.wiring.peering import load_rack
from agent.wiring.start_checks import check, load_choice
from agent.wiring.web_serving import Protection


@with_places
def dry_start(config: Config, folder: Path) -> int:
    """Check all that a start reads and that is not the node's; the number of rules. Raises ConfigError.

    Relative paths start at `folder`. No device, socket or server is touched.
    """
    check(config)
    load_rack(config, folder, 0.0)
    check_receivers(config)
    load_choice(config, folder)
    Protection(config, lambda: clock().wall).load()
    return sum(each.rule_count for each in load_rules(config, folder).files)
