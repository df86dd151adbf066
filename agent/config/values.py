"""Which values of a configuration can be used: ranges, lengths, and texts that break no page, log, label or address.

A value that nobody can mean is refused when the file is read; what it does hours later, in a thread or in a receiver's
parser, nobody would trace to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent.lib.wording import shown

if TYPE_CHECKING:
    from agent.config.schema import Config

Fail = Callable[[str, str], None]
"""Is told the key path and the problem, and raises."""

DEVICES = ("auto", "nvml", "synthetic", "none")
POWER_SOURCES = ("redfish", "ipmi", "hwmon", "rapl", "estimate")
BREAKERS = ("ul489", "iec60947-2", "iec60898-b", "iec60898-c", "iec60898-d", "electronic")
MOST_BREAKERS = 32
MOST_ITEMS = 1000
"""Entries of one list or mapping."""
MOST_TEXT = 4096
"""Characters of one text: a path has no more. Queries and annotations of overrides have limits of their own."""
MOST_NAME = 200
_LONG = re.compile(r"rules\.override\..+\.(?:expr|annotations\..+)", re.DOTALL)
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LISTEN = re.compile(r"([A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\]):(0|[1-9][0-9]{0,4})")
_URL_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,199}")
_BASE_URL = re.compile(r"https?://[A-Za-z0-9._~\[\]:-]{1,260}(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, halves of pairs, and separators of lines and paragraphs."""


def check_texts(raw: Any, path: str, fail: Fail) -> None:
    """What holds for every text, list and mapping of the file, whatever it is for."""
    if isinstance(raw, str):
        allowed = "\n\t" if _LONG.fullmatch(path) else ""
        if not allowed and len(raw) > MOST_TEXT:
            fail(path, f"has {len(raw)} characters, and {MOST_TEXT} are the most")
        if not raw.isprintable() and any(
            unicodedata.category(each) in _BREAKING and each not in allowed for each in raw
        ):
            fail(path, f"{shown(raw)} has a line break or another control character; leave it out")
        return
    if not isinstance(raw, (list, dict)):
        return
    if len(raw) > MOST_ITEMS:
        fail(path, f"has {len(raw)} entries, and {MOST_ITEMS} are the most")
    if isinstance(raw, list):
        for each in raw:
            check_texts(each, path, fail)
        return
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if isinstance(key, str):
            check_texts(key, inner if key.isprintable() else path, fail)
        check_texts(value, inner, fail)


def check_values(config: Config, fail: Fail) -> None:
    """The ranges of single values, and what contradicts each other."""
    _check_node(config, fail)
    _check_sampling(config, fail)
    _check_backends(config, fail)
    _check_rack(config, fail)
    _check_rules(config, fail)
    _check_notify(config, fail)
    _check_web(config, fail)
    for key, value in (("state_dir", config.state_dir), ("jobs.mapping_dir", config.jobs.mapping_dir)):
        if value == "":
            fail(key, "is empty; name a directory, or leave the key out")
    if not config.metrics.include:
        fail("metrics.include", "is empty, which would expose nothing; leave the key out, or write [all]")


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[address]:port`. Raises ValueError with the remedy."""
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"{shown(text)} is no address; write host:port, :port or [IPv6 address]:port")
    return match[1].strip("[]"), int(match[2])


def check_url_path(text: str) -> None:
    """Whether a text can be the path of the metrics. Raises ValueError with the remedy."""
    if not text.startswith("/"):
        raise ValueError(f"{shown(text)} must begin with '/'")
    if not _URL_PATH.fullmatch(text):
        raise ValueError(
            f"{shown(text)} is no path; use letters, digits and . _ ~ - after the slashes, such as /metrics"
        )


def base_url(text: str) -> str:
    """An address to which a path is added, without the slash at its end. Raises ValueError with the remedy."""
    if not _BASE_URL.fullmatch(text):
        raise ValueError(f"{shown(text)} is no address; write http(s)://host/path, without ? and #")
    return text.rstrip("/")


def _between(key: str, value: float, least: float, most: float, fail: Fail, remedy: str) -> None:
    if not least <= value <= most:  # NaN is between nothing
        fail(key, f"{value:g}s is out of range; use {remedy}")


def _check_node(config: Config, fail: Fail) -> None:
    node = config.node
    if node.name and not _HOST_NAME.fullmatch(node.name):
        fail("node.name", f"{shown(node.name)} is no name of a host; use letters, digits, '-', '_' and '.'")
    for key, value in (("node.rack", node.rack), ("node.cluster", node.cluster), ("rack.name", config.rack.name)):
        if value is not None and len(value) > MOST_NAME:
            fail(key, f"has {len(value)} characters, and {MOST_NAME} are the most")


def _check_sampling(config: Config, fail: Fail) -> None:
    sampling = config.sampling
    _between("sampling.fast", sampling.fast, 0.1, 60, fail, "100ms to 60s")
    if sampling.slow < sampling.fast:
        fail("sampling.slow", "is shorter than sampling.fast")
    _between("sampling.slow", sampling.slow, sampling.fast, 3600, fail, "sampling.fast to 1h")
    if sampling.cold < sampling.slow:
        fail("sampling.cold", "is shorter than sampling.slow")
    _between("sampling.cold", sampling.cold, sampling.slow, 86_400, fail, "sampling.slow to 1d")
    _between("sampling.deadline", sampling.deadline, 0.1, 60, fail, "100ms to 60s")
    _between("sampling.window", sampling.window, sampling.fast, 3600, fail, "sampling.fast to 1h")


def _check_backends(config: Config, fail: Fail) -> None:
    backends, estimate = config.backends, config.backends.estimate
    if backends.devices not in DEVICES:
        fail("backends.devices", f"{shown(backends.devices)} is unknown; use one of {', '.join(DEVICES)}")
    if backends.scenario is not None and backends.devices != "synthetic":
        fail("backends.scenario", "a scenario needs `devices: synthetic`")
    for source in backends.power:
        if source not in POWER_SOURCES:
            fail("backends.power", f"{shown(source)} is unknown; use any of {', '.join(POWER_SOURCES)}")
    if not 1 <= estimate.factor <= 3:
        fail("backends.estimate.factor", f"{estimate.factor:g} is out of range; use 1 to 3")
    if not 0 <= estimate.per_gpu <= 10_000:
        fail("backends.estimate.per_gpu", f"{estimate.per_gpu:g} W is out of range; use 0W to 10kW")
    if backends.expected_gpus is not None and not 0 <= backends.expected_gpus <= MOST_ITEMS:
        fail("backends.expected_gpus", f"must be between 0 and {MOST_ITEMS}")


def _check_rack(config: Config, fail: Fail) -> None:
    rack = config.rack
    if rack.name and config.node.rack and rack.name != config.node.rack:
        differs = f"{shown(rack.name)} differs from node.rack {shown(config.node.rack)}"
        fail("rack.name", f"{differs}; give one of them")
    if not (rack.name or config.node.rack):
        for key in ("power_budget", "feeds", "breakers", "shelves", "nodes_expected", "node_nameplate", "peers"):
            if getattr(rack, key):
                fail(f"rack.{key}", "is of no use without the rack's name; give it in rack.name or node.rack")
    if not 0 < rack.power_factor <= 1:
        fail("rack.power_factor", f"{rack.power_factor:g} is out of range; give a number above 0 and up to 1")
    if rack.nodes_expected is not None and not 1 <= rack.nodes_expected <= 1000:
        fail("rack.nodes_expected", "must be between 1 and 1000")
    if "" in rack.feeds:
        fail("rack.feeds", "a feed needs a name, such as {a: 34.5kVA}")
    for key, names in (("rack.feeds", rack.feeds), ("rack.breakers", rack.breakers)):
        for name in names:
            if not name.isprintable() or name != name.strip():
                remedy = "use only characters that can be seen, and spaces between them alone"
                fail(key, f"{shown(name)}: a name that the other agents refuse; {remedy}")
    _check_breakers(config, fail)
    if rack.peer.scheme not in ("http", "https"):
        fail("rack.peer.scheme", f"{shown(rack.peer.scheme)} is unknown; use http or https")


def _check_breakers(config: Config, fail: Fail) -> None:
    breakers, shelves = config.rack.breakers, config.rack.shelves
    if len(breakers) > MOST_BREAKERS:
        fail(
            "rack.breakers", f"has {len(breakers)} entries, and {MOST_BREAKERS} are the most; alike ones need one entry"
        )
    for name, each in breakers.items():
        key = f"rack.breakers.{name}"
        if not name or len(name) > MOST_NAME:
            fail("rack.breakers", f"{shown(name)}: a breaker needs a name of 1 to {MOST_NAME} characters")
        if each.kind not in BREAKERS:
            fail(f"{key}.class", f"{shown(each.kind)} is unknown; use one of {', '.join(BREAKERS)}")
        if each.share is not None and not 0 < each.share <= 1:
            fail(f"{key}.share", f"{each.share:g} is out of range; give the part of the rack's power, such as 0.125")
        if each.long_delay is not None and each.kind != "electronic":
            fail(
                f"{key}.long_delay", "is the setting of an electronic trip unit; set class: electronic, or leave it out"
            )
        if each.long_delay is not None:
            _between(f"{key}.long_delay", each.long_delay, 0.5, 60, fail, "500ms to 60s, at 6 times the rating")
    if shelves is not None and not 1 <= shelves.number <= 100:
        fail("rack.shelves.number", "must be between 1 and 100")
    if shelves is not None and not 0 <= shelves.spare < shelves.number:
        fail("rack.shelves.spare", "must be from 0 to one less than rack.shelves.number")


def _check_rules(config: Config, fail: Fail) -> None:
    rules = config.rules
    _between("rules.interval", rules.interval, 1, 60, fail, "1s to 60s")
    if rules.memory < 2**20:
        fail("rules.memory", "is too little for any window; give 1MiB or more")
    if not rules.memory <= 64 * 2**30:
        fail("rules.memory", "is more than any node needs; give 64GiB or less")
    if rules.runbook_base is not None:
        try:
            base_url(rules.runbook_base)
        except ValueError as error:
            fail("rules.runbook_base", str(error))
    for name, override in rules.override.items():
        for key, value in (("for", override.hold), ("keep_firing_for", override.keep_firing_for)):
            if value is not None:
                _between(f"rules.override.{name}.{key}", value, 0, 365 * 86_400, fail, "0s to 365d")


def _check_notify(config: Config, fail: Fail) -> None:
    notify = config.notify
    _between("notify.resend", notify.resend, 1, 3600, fail, "1s to 1h")
    for key in ("alertmanager", "webhook"):
        if not 0.1 <= getattr(notify, key).timeout <= 60:
            fail(f"notify.{key}.timeout", "is out of range; use 100ms to 60s")
    _check_labels("notify.labels", notify.labels, fail)


def _check_labels(path: str, labels: Mapping[str, str], fail: Fail) -> None:
    """As Prometheus checks its external_labels."""
    for name in labels:
        if not _LABEL_NAME.fullmatch(name) or name == "__name__":
            remedy = "use letters, digits and _, not beginning with a digit"
            fail(f"{path}.{name}" if name else path, f"{shown(name)} is no name of a label; {remedy}")


def _check_web(config: Config, fail: Fail) -> None:
    web = config.web
    if not web.listen:
        fail("web.listen", "must name an address, such as ':19400'")
    for key, check, values in (
        ("web.listen", listen_address, web.listen),
        ("web.telemetry_path", check_url_path, (web.telemetry_path,)),
    ):
        for value in values:
            try:
                check(value)
            except ValueError as error:
                fail(key, str(error))
    if not 1 <= web.max_connections <= 10_000:
        fail("web.max_connections", "must be between 1 and 10000")
