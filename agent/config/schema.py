"""The configuration: every key, with its default and all that is known of it.

Parsing, checking, the warning that a key needs a restart, the reference in docs/configuration.md and the commented
default file come from here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from agent.config.key import Key, Notation

DEVICES = ("auto", "nvml", "synthetic", "none")
POWER_SOURCES = ("redfish", "ipmi", "hwmon", "rapl", "estimate")
BREAKERS = ("ul489", "iec60947-2", "iec60898-b", "iec60898-c", "iec60898-d", "electronic")
POWER_FACTOR = 0.95


class ConfigError(Exception):
    """The configuration cannot be used; the text names the place and the remedy."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file. Its docstring heads it in the reference."""


class NodeConfig(Section, frozen=True):
    """Who this node is. It is shown to people; it is no label, since Prometheus knows its targets."""

    name: Annotated[
        str | None,
        Key("Its name, like a host's; the host's own if it is left out.", restart=True, example="node-1.example"),
    ] = None
    rack: Annotated[str | None, Key("The rack that feeds it; or rack.name.", example="r12")] = None
    cluster: Annotated[
        str | None, Key("The cluster that it belongs to; a label of its alerts.", restart=True, example="east")
    ] = None


class SamplingConfig(Section, frozen=True):
    """How often devices are read. Shorter periods cost processor time (performance.md)."""

    fast: Annotated[
        float, Key("Period of what changes fast: power, utilization, clocks.", Notation.DURATION, "100ms", most="60s")
    ] = 1.0
    slow: Annotated[
        float, Key("Period of what changes slowly; sampling.fast or more.", Notation.DURATION, "100ms", most="1h")
    ] = 15.0
    cold: Annotated[
        float, Key("Period of what hardly changes; sampling.slow or more.", Notation.DURATION, "100ms", most="1d")
    ] = 60.0
    deadline: Annotated[
        float,
        Key("A GPU silent for longer, and for three fast periods, is down.", Notation.DURATION, "100ms", most="60s"),
    ] = 2.0
    window: Annotated[
        float,
        Key(
            "Span of the rolling minimum, mean and maximum; sampling.fast or more.",
            Notation.DURATION,
            "100ms",
            most="1h",
        ),
    ] = 60.0


class RedfishConfig(Section, frozen=True):
    """A BMC to ask for the node's power."""

    url: Annotated[str, Key("Its address.", example='"https://bmc.example"')]
    username: Annotated[str, Key("Who logs in there.")] = ""
    password_file: Annotated[str | None, Key("A file with the password and nothing else.")] = None
    ca_file: Annotated[str | None, Key("Certificates that are trusted there; the system's if it is left out.")] = None
    verify: Annotated[bool, Key("Whether its certificate is checked.")] = True
    chassis: Annotated[str | None, Key("Which chassis is this node, where it has several.", example='"1"')] = None


class EstimateConfig(Section, frozen=True):
    """Node power where nothing measures it (racks.md)."""

    factor: Annotated[float, Key("How many times the power of the GPUs it is,", least="1", most="3")] = 1.1
    per_gpu: Annotated[float, Key("and how much more for each of them.", Notation.POWER, "0W", most="10kW")] = 212.5


class BackendsConfig(Section, frozen=True):
    """Where readings come from."""

    devices: Annotated[
        str, Key("Where GPUs are read; auto is nvml where there is a driver.", words=DEVICES, restart=True)
    ] = "auto"
    scenario: Annotated[
        str | None,
        Key("With synthetic: a scenario of scenarios.md, or a file.", restart=True, example="straggler"),
    ] = None
    infiniband: Annotated[bool, Key("Whether InfiniBand and RoCE ports are read.", restart=True)] = True
    host: Annotated[bool, Key("Whether processors, memory, disks and network are read.", restart=True)] = True
    power: Annotated[
        tuple[str, ...],
        Key("What tells the node's power; the first that measures all of it wins.", words=POWER_SOURCES, restart=True),
    ] = POWER_SOURCES
    redfish: Annotated[
        RedfishConfig | None,
        Key("A BMC to ask for the node's power.", restart=True),
    ] = None
    estimate: EstimateConfig = EstimateConfig()
    expected_gpus: Annotated[
        int | None,
        Key("GPUs that must be there; as many as ever were if it is left out.", least="0", most="1000", example="8"),
    ] = None


class JobsConfig(Section, frozen=True):
    """How the jobs that hold GPUs are found (jobs.md)."""

    sources: Annotated[
        tuple[str, ...], Key("Names of sources; all of them, or none with [].", restart=True, example="[slurm]")
    ] = ("all",)
    mapping_dir: Annotated[
        str | None, Key("The directory of dcgm-exporter's --hpc-job-mapping-dir.", restart=True, example="/run/jobs")
    ] = None
    trust_environment: Annotated[
        tuple[str, ...],
        Key("Schedulers whose variables count in every process.", restart=True, example="[slurm]"),
    ] = ()


class MetricsConfig(Section, frozen=True):
    """Which metrics a page shows. Rules on the node read them all."""

    include: Annotated[
        tuple[str, ...], Key("Names, with *; default, detail, all.", example='[default, "coldplate_gpu_*"]')
    ] = ("default",)
    exclude: Annotated[
        tuple[str, ...], Key("What is left out of these.", example="[coldplate_gpu_clock_min_hertz]")
    ] = ()


class LoginConfig(Section, frozen=True):
    """How a client of the agent's logs in."""

    username: Annotated[str, Key("Who logs in there.")] = ""
    password_file: Annotated[str | None, Key("A file with the password and nothing else.")] = None
    bearer_token_file: Annotated[str | None, Key("A file with a token, instead of name and password.")] = None
    ca_file: Annotated[str | None, Key("Certificates that are trusted there; the system's if it is left out.")] = None
    verify: Annotated[bool, Key("Whether certificates are checked.")] = True


class PeerConfig(LoginConfig, frozen=True):
    """How the agents of the other nodes are reached."""

    scheme: Annotated[str, Key("How they are asked.", words=("http", "https"))] = "http"


class BreakerConfig(Section, frozen=True, rename={"kind": "class"}):
    """A breaker, by its name; one that is named like a feed carries an even share."""

    kind: Annotated[str, Key("Its class: how long it carries how much.", words=BREAKERS, example="ul489")]
    rating: Annotated[
        float, Key("What it carries without end.", Notation.LIMIT, example="{amperes: 60, volts: 415, phases: 3}")
    ]
    share: Annotated[
        float | None, Key("The part of the rack's power that it carries.", above="0", most="1", example="0.5")
    ] = None
    long_delay: Annotated[
        float | None,
        Key("With electronic: the delay at 6 times the rating.", Notation.DURATION, "500ms", most="60s", example="8s"),
    ] = None


class ShelvesConfig(Section, frozen=True):
    """Power shelves."""

    number: Annotated[int, Key("How many there are.", least="1", most="100", example="8")]
    rating: Annotated[float, Key("What each can give.", Notation.LIMIT, example="33kW")]
    spare: Annotated[int, Key("How many of them may fail; fewer than there are.", least="0", most="99")] = 1


class RackConfig(Section, frozen=True):
    """The rack that feeds this node (racks.md)."""

    name: Annotated[str | None, Key("Its name; or node.rack.", example="r12")] = None
    power_budget: Annotated[
        float | None,
        Key(
            "What all its nodes may draw together: power, apparent power or current.", Notation.LIMIT, example="40.8kW"
        ),
    ] = None
    power_factor: Annotated[float, Key("For limits in volt-amperes and amperes.", above="0", most="1")] = POWER_FACTOR
    feeds: Annotated[
        dict[str, float],
        Key(
            "What each of its supplies may carry.",
            Notation.LIMIT,
            example="{a: 34.5kVA, b: {amperes: 180, volts_dc: 800}}",
        ),
    ] = {}
    breakers: dict[str, BreakerConfig] = {}
    shelves: ShelvesConfig | None = None
    nodes_expected: Annotated[
        int | None,
        Key("Nodes that it has; this one and its peers if it is left out.", least="1", most="1000", example="4"),
    ] = None
    node_nameplate: Annotated[
        float | None, Key("What a silent node is taken to draw.", Notation.LIMIT, example="10.2kW")
    ] = None
    peers: Annotated[
        tuple[str, ...],
        Key(
            "Agents of its nodes: host:port, dns+name:port, or a file_sd file; this node may be among them.",
            example="[node-2:19400, dns+rack-r12.example:19400, peers.yml]",
        ),
    ] = ()
    peer: PeerConfig = PeerConfig()


class OverrideConfig(Section, frozen=True, rename={"hold": "for"}):
    """What an alert of the rule files shall have instead, by its name."""

    hold: Annotated[
        float | None, Key("How long before it fires.", Notation.DURATION, "0s", most="365d", example="10m")
    ] = None
    keep_firing_for: Annotated[
        float | None, Key("How long it fires after that.", Notation.DURATION, "0s", most="365d", example="1m")
    ] = None
    labels: Annotated[dict[str, str], Key("Labels that are added or changed.", example="{severity: info}")] = {}
    annotations: Annotated[dict[str, str], Key("Annotations that are added or changed.", example="{team: hpc}")] = {}
    thresholds: Annotated[
        dict[float, float], Key("Numbers of its query, and what stands instead.", Notation.NUMBERS, example="{5: 8}")
    ] = {}
    expr: Annotated[str | None, Key("The whole query.")] = None


class RulesConfig(Section, frozen=True):
    """The rules that the agent evaluates (rules.md)."""

    files: Annotated[
        tuple[str, ...],
        Key("Rule files of Prometheus, or patterns; builtin is the pack, [] none.", example="[builtin, site/*.yml]"),
    ] = ("builtin",)
    interval: Annotated[
        float, Key("For groups without an interval of their own.", Notation.DURATION, "1s", most="60s")
    ] = 1.0
    disable: Annotated[tuple[str, ...], Key("Names of alerts, with *.", example="[GpuHot]")] = ()
    override: dict[str, OverrideConfig] = {}
    memory: Annotated[float, Key("For the samples that rules read.", Notation.SIZE, "1MiB", most="64GiB")] = (
        64 * 2.0**20
    )
    runbook_base: Annotated[
        str | None,
        Key("Where runbook_url leads; to the agents if it is left out.", example="https://docs.example/runbooks"),
    ] = None


class ReceiverConfig(LoginConfig, frozen=True):
    """Where notifications go, and how to log in there."""

    urls: Annotated[
        tuple[str, ...], Key("Addresses; each gets every alert.", example='["http://am-0.example:9093"]')
    ] = ()
    timeout: Annotated[float, Key("How long one answer may take.", Notation.DURATION, "100ms", most="60s")] = 10.0


class NotifyConfig(Section, frozen=True):
    """Who is told of alerts (rules.md)."""

    log: Annotated[bool, Key("Whether they are written to the log.")] = True
    alertmanager: ReceiverConfig = ReceiverConfig()
    webhook: ReceiverConfig = ReceiverConfig()
    resend: Annotated[
        float, Key("How often an alert that goes on is told again.", Notation.DURATION, "1s", most="1h")
    ] = 60.0
    labels: Annotated[
        dict[str, str], Key("Added to alerts that lack them, as external_labels are.", example="{site: north}")
    ] = {}


class WebConfig(Section, frozen=True):
    """Where and how the agent is served."""

    listen: Annotated[tuple[str, ...], Key("Addresses: host:port, :port or [IPv6 address]:port.", restart=True)] = (
        ":19400",
    )
    telemetry_path: Annotated[str, Key("The path of the metrics.", restart=True)] = "/metrics"
    enable_lifecycle: Annotated[bool, Key("Whether POST /-/reload reads this file again.", restart=True)] = False
    max_connections: Annotated[
        int, Key("Connections that are open at a time.", least="1", most="10000", restart=True)
    ] = 64


class Config(Section, frozen=True):
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
    state_dir: Annotated[
        str | None,
        Key(
            "Where alerts and the inventory are kept; systemd's state directory, or /var/lib/coldplate, if left out.",
            restart=True,
            example="/var/lib/coldplate",
        ),
    ] = None
