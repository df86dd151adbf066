"""Checks beyond the schema: texts, lists, names that others reject, and values that contradict each other.

A text must not break a page, log, label or address. An implausible value is rejected when the file is read; the damage
that it does hours later, in a thread or in a receiver's parser, would be hard to trace back.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from agent.config.quantities import duration_text
from agent.config.schema import Config
from agent.lib.wording import shown

Fail = Callable[[str, str], None]
"""Called with the key path and the problem; raises."""

MOST_ITEMS = 1000
"""Most entries of one list or mapping."""
MOST_TEXT = 4096
"""Most characters of one text: no path has more. Queries and annotations of overrides have limits of their own."""
_LONG = re.compile(r"rules\.override\..+\.(?:expr|annotations\..+)", re.DOTALL)
_LISTEN = re.compile(r"([A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\]):(0|[1-9][0-9]{0,4})")
_URL_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,199}")
_BASE_URL = re.compile(r"https?://[A-Za-z0-9._~\[\]:-]{1,260}(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")
_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, halves of pairs, and separators of lines and paragraphs."""


def check_texts(raw: Any, path: str, fail: Fail) -> None:
    """Check what applies to every text, list and mapping of the file."""
    if isinstance(raw, str):
        allowed = "\n\t" if _LONG.fullmatch(path) else ""
        if not allowed and len(raw) > MOST_TEXT:
            fail(path, f"has {len(raw)} characters; the limit is {MOST_TEXT}")
        if not raw.isprintable() and any(
            unicodedata.category(letter) in _BREAKING and letter not in allowed for letter in raw
        ):
            value = "the URL" if "://" in raw else shown(raw)  # the path of a webhook is its password
            fail(path, f"{value} has a line break or another control character; remove it")
        return
    if not isinstance(raw, (list, dict)):
        return
    if len(raw) > MOST_ITEMS:
        fail(path, f"has {len(raw)} entries; the limit is {MOST_ITEMS}")
    if isinstance(raw, list):
        for letter in raw:
            check_texts(letter, path, fail)
        return
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if isinstance(key, str):
            check_texts(key, inner if key.isprintable() else path, fail)
        check_texts(value, inner, fail)


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[address]:port`. Raises ValueError with the remedy."""
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        address = text if "://" in text else text.rpartition("@")[2]  # a password has no place here, nor in a log
        raise ValueError(f"{shown(address)} is not an address; write host:port, :port or [IPv6 address]:port")
    return match[1].strip("[]"), int(match[2])


def check_url_path(text: str) -> None:
    """Check that a text can be the path of the metrics. Raises ValueError with the remedy."""
    if not text.startswith("/"):
        raise ValueError(f"{shown(text)} must begin with '/'")
    if not _URL_PATH.fullmatch(text):
        raise ValueError(
            f"{shown(text)} is not a path; use letters, digits and . _ ~ - after the slashes, such as /metrics"
        )


def base_url(text: str) -> str:
    """Return an address to which a path is added, without the slash at its end. Raises ValueError with the remedy."""
    if not _BASE_URL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a URL; write http(s)://host/path, without a login, ? and #")
    return text.rstrip("/")


NEED_A_NAME = ("power_budget", "feeds", "breakers", "shelves", "nodes_expected", "node_nameplate", "nvlink_domains",
               "peers", "equipment")  # fmt: skip
"""Keys of a rack that has a name."""
MOST_BREAKERS = 32
MOST_NAME = 200
MOST_EQUIPMENT = 32
MOST_EQUIPMENT_NAME = 64
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def check_values(config: Config, fail: Fail) -> None:
    _check_node(config, fail)
    _check_sampling(config, fail)
    if config.backends.scenario is not None and config.backends.devices != "synthetic":
        fail("backends.scenario", "a scenario needs `devices: synthetic`")
    _check_rack(config, fail)
    if config.rules.runbook_base is not None:
        _try(base_url, config.rules.runbook_base, "rules.runbook_base", fail)
    _check_labels("notify.labels", config.notify.labels, fail)
    _check_web(config, fail)
    for key, value in (
        ("state_dir", config.state_dir),
        ("jobs.mapping_dir", config.jobs.mapping_dir),
        ("recorder.directory", config.recorder.directory),
    ):
        if value == "":
            fail(key, "is empty; name a directory, or remove the key")
    if config.metrics.profile == "none" and not (config.metrics.include or config.metrics.compatibility):
        fail(
            "metrics.profile", "none, without metrics.include, would expose nothing; name metrics there, or write lean"
        )


def _check_node(config: Config, fail: Fail) -> None:
    node = config.node
    if node.name and not _HOST_NAME.fullmatch(node.name):
        fail("node.name", f"{shown(node.name)} is not a valid host name; use letters, digits, '-', '_' and '.'")
    for key, value in (("node.rack", node.rack), ("node.cluster", node.cluster), ("rack.name", config.rack.name)):
        if value is not None and len(value) > MOST_NAME:
            fail(key, f"has {len(value)} characters; the limit is {MOST_NAME}")


def _check_sampling(config: Config, fail: Fail) -> None:
    sampling = config.sampling
    for key, shorter in (("slow", "fast"), ("cold", "slow"), ("window", "fast")):
        if getattr(sampling, key) < getattr(sampling, shorter):
            period = f"{duration_text(getattr(sampling, key))} is shorter than sampling.{shorter}"
            fail(f"sampling.{key}", f"{period}, {duration_text(getattr(sampling, shorter))}; set both")


def _check_rack(config: Config, fail: Fail) -> None:
    rack = config.rack
    if rack.name and config.node.rack and rack.name != config.node.rack:
        differs = f"{shown(rack.name)} differs from node.rack {shown(config.node.rack)}"
        fail("rack.name", f"{differs}; give one of them")
    if not (rack.name or config.node.rack):
        for key in NEED_A_NAME:
            if getattr(rack, key):
                fail(f"rack.{key}", "needs the rack's name; set rack.name or node.rack")
    if "" in rack.feeds:
        fail("rack.feeds", "a feed needs a name, such as {a: 34.5kVA}")
    for key, names in (("rack.feeds", rack.feeds), ("rack.breakers", rack.breakers)):
        for name in names:
            if not name.isprintable() or name != name.strip():
                remedy = "use printable characters, with spaces only between them"
                fail(key, f"{shown(name)}: the other agents reject this name; {remedy}")
    _check_breakers(config, fail)
    _check_equipment(config, fail)


def _check_equipment(config: Config, fail: Fail) -> None:
    equipment = config.rack.equipment
    if len(equipment) > MOST_EQUIPMENT:
        fail("rack.equipment", f"has {len(equipment)} entries; the limit is {MOST_EQUIPMENT}")
    for name in equipment:
        if not name or len(name) > MOST_EQUIPMENT_NAME or not name.isprintable() or name != name.strip():
            remedy = f"use 1 to {MOST_EQUIPMENT_NAME} printable characters, with spaces only between them"
            fail("rack.equipment", f"{shown(name)} names series and is sent to the other agents; {remedy}")


def _check_breakers(config: Config, fail: Fail) -> None:
    breakers, shelves = config.rack.breakers, config.rack.shelves
    if len(breakers) > MOST_BREAKERS:
        fail(
            "rack.breakers",
            f"has {len(breakers)} entries; the limit is {MOST_BREAKERS}. Identical breakers need one entry",
        )
    for name, breaker in breakers.items():
        key = f"rack.breakers.{name}"
        if not name or len(name) > MOST_NAME:
            fail("rack.breakers", f"{shown(name)}: a breaker needs a name of 1 to {MOST_NAME} characters")
        if breaker.long_delay is not None and breaker.kind != "electronic":
            fail(f"{key}.long_delay", "is a setting of electronic trip units; set class: electronic, or remove the key")
    if shelves is not None and shelves.spare >= shelves.count:
        fail("rack.shelves.spare", "must be from 0 to one less than rack.shelves.count")


def _check_labels(path: str, labels: Mapping[str, str], fail: Fail) -> None:
    """Check labels as Prometheus checks its external_labels."""
    for name in labels:
        if not _LABEL_NAME.fullmatch(name) or name == "__name__":
            remedy = "use letters, digits and _, not starting with a digit"
            fail(f"{path}.{name}" if name else path, f"{shown(name)} is not a valid label name; {remedy}")


def _check_web(config: Config, fail: Fail) -> None:
    web = config.web
    if not web.listen:
        fail("web.listen", "must name an address, such as ':19400'")
    for address in web.listen:
        _try(listen_address, address, "web.listen", fail)
    if web.config_file == "":
        fail("web.config_file", "is empty; name a file, or remove the key")
    _try(check_url_path, web.telemetry_path, "web.telemetry_path", fail)


def _try(check: Callable[[str], object], text: str, key: str, fail: Fail) -> None:
    try:
        check(text)
    except ValueError as error:
        fail(key, str(error))
