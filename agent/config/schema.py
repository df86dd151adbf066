"""The configuration: one YAML file in which every key is optional.

An unknown key is an error that names file, line, key path and the nearest valid key, because a typo
that is ignored is a threshold that nobody set. Keys that belong to features which this version does not
have are unknown to it, and it says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from agent.config import quantities
from agent.config.values import check_texts, check_values
from agent.config.wrong_types import in_words
from agent.lib import textfile, yamltree
from agent.lib.wording import one_line
from agent.lib.yamltree import Node


class ConfigError(Exception):
    """The configuration cannot be used; the text names the place and the remedy."""


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who this node is. `name` is shown to people; it is no label, since Prometheus knows its targets."""

    name: str | None = None
    rack: str | None = None
    cluster: str | None = None


class SamplingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Periods of the lanes, deadline and rolling window, in seconds."""

    fast: float = 1.0
    slow: float = 15.0
    cold: float = 60.0
    deadline: float = 2.0
    window: float = 60.0


class RedfishConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A BMC to ask for the node's power. `password_file` holds the password and nothing else."""

    url: str
    username: str = ""
    password_file: str | None = None
    ca_file: str | None = None
    verify: bool = True
    chassis: str | None = None


class EstimateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Node power where nothing measures it: `factor` times that of the GPUs, and `per_gpu` watts for each of them."""

    factor: float = 1.1
    per_gpu: float = 212.5


class BackendsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where readings come from."""

    devices: str = "auto"
    scenario: str | None = None
    infiniband: bool = True
    host: bool = True
    power: tuple[str, ...] = ("redfish", "ipmi", "hwmon", "rapl", "estimate")
    redfish: RedfishConfig | None = None
    estimate: EstimateConfig = EstimateConfig()
    expected_gpus: int | None = None


class JobsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the jobs that hold GPUs are found; no sources: not at all."""

    sources: tuple[str, ...] = ("all",)
    mapping_dir: str | None = None
    trust_environment: tuple[str, ...] = ()


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which metrics are exposed: names with `*`, `default`, `detail` or `all`."""

    include: tuple[str, ...] = ("default",)
    exclude: tuple[str, ...] = ()


class PeerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the agents of the other nodes are reached."""

    scheme: str = "http"
    username: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    verify: bool = True


POWER_FACTOR = 0.95


class BreakerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class"}):
    """A breaker: its class, its rating in watts, the part of the rack's power that it carries, and for electronic ones
    the long delay at 6 times the rating in seconds."""

    kind: str
    rating: float
    share: float | None = None
    long_delay: float | None = None


class ShelvesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Power shelves: how many, what each can give in watts, and how many of them may fail."""

    number: int
    rating: float
    spare: int = 1


class RackConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rack that feeds this node. Limits are in watts, whatever the file tells them in.

    `feeds` are the limits of the single supplies; a breaker of the same name carries an even share. `peers` are the
    other nodes' agents: addresses, DNS names of many, files; this node's own address may be among them.
    """

    name: str | None = None
    power_budget: float | None = None
    power_factor: float = POWER_FACTOR
    feeds: dict[str, float] = {}
    breakers: dict[str, BreakerConfig] = {}
    shelves: ShelvesConfig | None = None
    nodes_expected: int | None = None
    node_nameplate: float | None = None
    peers: tuple[str, ...] = ()
    peer: PeerConfig = PeerConfig()


class OverrideConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"hold": "for"}):
    """What an alert of the rule files shall have instead; `hold` and `keep_firing_for` in seconds.

    `thresholds` replaces numbers of the query by others, `expr` the whole query.
    """

    hold: float | None = None
    keep_firing_for: float | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    thresholds: dict[float, float] = {}
    expr: str | None = None


class RulesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules that the agent evaluates; `interval` in seconds, `memory` in bytes.

    `runbook_base` is the address below which the runbooks of the pack are; None where each agent shows its own.
    """

    files: tuple[str, ...] = ("builtin",)
    interval: float = 1.0
    disable: tuple[str, ...] = ()
    override: dict[str, OverrideConfig] = {}
    memory: float = 64 * 2.0**20
    runbook_base: str | None = None


class ReceiverConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where notifications go, and how to log in there; every URL gets every alert."""

    urls: tuple[str, ...] = ()
    username: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    verify: bool = True
    timeout: float = 10.0


class NotifyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is told of alerts; `resend` in seconds, `labels` are added to alerts that lack them."""

    log: bool = True
    alertmanager: ReceiverConfig = ReceiverConfig()
    webhook: ReceiverConfig = ReceiverConfig()
    resend: float = 60.0
    labels: dict[str, str] = {}


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and how the agent is served."""

    listen: tuple[str, ...] = (":19400",)
    telemetry_path: str = "/metrics"
    enable_lifecycle: bool = False
    max_connections: int = 64


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeConfig = NodeConfig()
    sampling: SamplingConfig = SamplingConfig()
    backends: BackendsConfig = BackendsConfig()
    jobs: JobsConfig = JobsConfig()
    metrics: MetricsConfig = MetricsConfig()
    rack: RackConfig = RackConfig()
    rules: RulesConfig = RulesConfig()
    notify: NotifyConfig = NotifyConfig()
    web: WebConfig = WebConfig()
    state_dir: str | None = None


_LATER = {
    "recorder": "this version has no flight recorder",
    "metrics.compatibility": "this version has no compatibility profiles",
    "web.config_file": "this version serves plain HTTP only",
}

_QUANTITIES: dict[str, Callable[[object], object]] = {
    **{f"sampling.{key}": quantities.duration for key in ("fast", "slow", "cold", "deadline", "window")},
    "backends.estimate.per_gpu": quantities.power,
    "rules.interval": quantities.duration,
    "rules.memory": quantities.size,
    "rules.override.*.for": quantities.duration,
    "rules.override.*.keep_firing_for": quantities.duration,
    "rules.override.*.thresholds": quantities.numbers,
    "rack.breakers.*.long_delay": quantities.duration,
    "notify.resend": quantities.duration,
    "notify.alertmanager.timeout": quantities.duration,
    "notify.webhook.timeout": quantities.duration,
}

_ANY_NAME = re.compile(r"^(rules\.override\.|rack\.breakers\.).+(\.\w+)$|^(rack\.feeds\.).+$", re.DOTALL)


def load(path: Path, must_exist: bool = True, *, handed: bool = False) -> Config:
    """The configuration of a file; the defaults where there may be none. Raises ConfigError.

    `handed` allows a pipe of the command line, which gives it once (see `read_text`).
    """
    try:
        text = textfile.read_text(path, textfile.CONFIGURATION, handed=handed)
    except textfile.ReadError as error:
        if error.missing and not must_exist:
            return Config()
        remedy = "" if ";" in error.problem else "; give another file with --config.file"
        raise ConfigError(f"{error}{remedy}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Config:
    """The configuration of a text; `name` is told in errors. Raises ConfigError."""
    try:
        tree = yamltree.compose(text, yamltree.Bounds()).root
        raw = yamltree.plain(tree)
        place = _Places(name, tree)
    except yamltree.YamlError as error:
        raise ConfigError(f"{name}:{error.line}: {error.problem}") from None
    if raw is None:
        return Config()
    if not isinstance(raw, dict):
        raise ConfigError(f"{name}:1: must be a mapping of sections, such as `sampling: {{fast: 1s}}`")
    _check_keys(raw, Config, "", place)
    check_texts(raw, "", place.fail)
    converted = _convert_quantities(raw, "", place, {**_QUANTITIES, **_limits(raw)})
    try:
        config = msgspec.convert(converted, Config)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `")
        if where.startswith("key"):
            problem = "a name in it is no text; put it in quotes"
        key = where.rpartition("$")[2].rstrip("`").lstrip(".")
        place.fail(key, in_words(problem, key, raw))
    check_values(config, place.fail)
    return config


class _Places:
    """Lines of key paths in a file."""

    def __init__(self, name: str, tree: Node | None) -> None:
        self._name = name
        self._lines: dict[str, int] = {}
        self._walk(tree, "")

    def _walk(self, tree: Node | None, path: str) -> None:
        if isinstance(tree, yamltree.YamlMapping):
            for key, value in yamltree.pairs_of(tree, lambda *_: None):
                inner = f"{path}.{key.text}".lstrip(".")
                self._lines.setdefault(inner, key.line)
                self._walk(value, inner)

    def of(self, path: str) -> str:
        """`file:line` of a key path, or of the nearest key above it."""
        while path and path not in self._lines:
            path = path.rpartition("[")[0] if path.endswith("]") else path.rpartition(".")[0]
        return f"{self._name}:{self._lines[path]}" if path else self._name

    def fail(self, key: str, problem: str) -> NoReturn:
        """Refuse what stands at a key path."""
        raise ConfigError(f"{self.of(key)}: {one_line(key, 200) or 'file'}: {one_line(problem)}")


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The section type of a field's annotation, which may be optional or a mapping to it."""
    for each in (kind, *getattr(kind, "__args__", ())):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _check_keys(raw: Mapping[Any, Any], struct: type[msgspec.Struct], path: str, place: _Places) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if key not in fields:
            place.fail(inner, _unknown(str(key), inner, list(fields)))
        section = _struct_of(fields[key])
        if section is None or not isinstance(value, dict):
            continue
        if getattr(fields[key], "__origin__", None) is dict:
            for name, each in value.items():
                if isinstance(each, dict):
                    _check_keys(each, section, f"{inner}.{name}", place)
        else:
            _check_keys(value, section, inner, place)


def _unknown(key: str, path: str, valid: list[str]) -> str:
    if path in _LATER:
        return f"{_LATER[path]}; remove the key"
    near = difflib.get_close_matches(key[:100], valid, 1, 0.5)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; valid here: {', '.join(valid)}"


def _limits(raw: dict[Any, Any]) -> dict[str, Callable[[object], object]]:
    """How the rack's limits are read: volt-amperes are watts with the power factor that stands beside them."""
    rack = raw.get("rack")
    factor = rack.get("power_factor") if isinstance(rack, dict) else None
    if not isinstance(factor, (int, float)) or not 0 < factor <= 1:
        factor = POWER_FACTOR  # a value that is none is refused in its own place
    limit = partial(quantities.limit, power_factor=factor)
    keys = ("power_budget", "node_nameplate", "feeds.*", "breakers.*.rating", "shelves.rating")
    return {f"rack.{key}": limit for key in keys}


def _convert_quantities(
    raw: dict[Any, Any], path: str, place: _Places, known: Mapping[str, Callable[[object], object]]
) -> dict[Any, Any]:
    converted: dict[Any, Any] = {}
    for key, value in raw.items():
        inner = f"{path}.{key}".lstrip(".")
        if value is None and inner.count(".") == 0 and inner != "state_dir":
            continue  # an empty section is a section of defaults
        quantity = known.get(_ANY_NAME.sub(r"\1\3*\2", inner))
        if quantity is not None and value is not None:
            try:
                converted[key] = quantity(value)
            except ValueError as error:
                place.fail(inner, str(error))
        else:
            converted[key] = _convert_quantities(value, inner, place, known) if isinstance(value, dict) else value
    return converted
