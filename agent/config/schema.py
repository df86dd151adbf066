"""The configuration: every key, with its default and metadata.

Parsing, checking, the warning that a key needs a restart, the reference in docs/configuration.md and the commented
default file are derived from it.
"""

from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import msgspec

from agent.config.quantities import Key, Notation, duration_key, size_key
from agent.config.words import DEVICES, PROFILES
from agent.lib.wording import UserError

TRIGGERS = ("firing", "xid")
NEIGHBOURS = ("dcgm", "node_infiniband", "nvitop", "nvidia_smi", "opentelemetry")
HOSTNAME_LABELS = ("both", "Hostname", "hostname")
DCGM_LABELS = ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION")
INDEX, MINOR = "index", "minor"
MAPPING_NAMES = (INDEX, MINOR)
POWER_SOURCES = ("redfish", "ipmi", "hwmon", "rapl", "estimate")
BREAKERS = ("ul489", "iec60947-2", "iec60898-b", "iec60898-c", "iec60898-d", "electronic")
POWER_FACTOR = 0.95

_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")


class ConfigError(UserError):
    """The configuration cannot be used; the text names the place and the remedy."""


def parse_value(
    key: str, parse: Callable[_Parameters, _Value], *arguments: _Parameters.args, **options: _Parameters.kwargs
) -> _Value:
    """Return what `parse` makes of a value. Its ValueError becomes a ConfigError that begins with the key or option."""
    try:
        return parse(*arguments, **options)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


class ConfigSource(msgspec.Struct, frozen=True, eq=False):
    """What a configuration was read from, for errors that are found later. Two configurations may differ in it alone.

    `replaced` are keys that the command line has set: a line of the file would mislead.
    """

    name: str = ""
    text: str = ""
    replaced: frozenset[str] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigSource)

    def __hash__(self) -> int:
        return 0


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file. Its docstring is its heading in the reference."""


class NodeConfig(Section, frozen=True):
    """The identity of this node, for its pages and its alerts: scraped series take `instance` from the target."""

    name: Annotated[
        str | None, Key("Name of the node; the host name if not set.", restart=True, example="node-1.example")
    ] = None
    rack: Annotated[str | None, Key("Rack that feeds the node; or set rack.name.", example="r12")] = None
    cluster: Annotated[str | None, Key("Cluster of the node; a label on its alerts.", restart=True, example="east")] = (
        None
    )


class SamplingConfig(Section, frozen=True):
    """How often devices are read. Shorter periods cost processor time (performance.md)."""

    fast: Annotated[
        float,
        duration_key(
            "Period of fast metrics: power, utilization, clocks. Sums and statistics: once a second at most.",
            "100ms",
            "60s",
        ),
    ] = 1.0
    slow: Annotated[float, duration_key("Period of slow metrics; at least sampling.fast.", "100ms", "1h")] = 15.0
    cold: Annotated[
        float, duration_key("Period of rarely changing metrics; at least sampling.slow.", "100ms", "1d")
    ] = 60.0
    deadline: Annotated[
        float, duration_key("A GPU silent for this long, and for three fast periods, is down.", "100ms", "60s")
    ] = 2.0
    window: Annotated[
        float, duration_key("Span of the rolling minimum, mean and maximum; at least sampling.fast.", "100ms", "1h")
    ] = 60.0


class OverheadConfig(Section, frozen=True):
    """What the agent may cost: it reads the lanes less often before it takes more (operations.md)."""

    cpu_cores: Annotated[
        float, Key("Share of one processor core for all of it; 0 is no limit.", least="0", most="64", example="0.05")
    ] = 0.25


class RedfishConfig(Section, frozen=True):
    """The node's management controller."""

    url: Annotated[str, Key("URL of the BMC.", example='"https://bmc.example"')]
    username: Annotated[str, Key("User name to log in with.")] = ""
    password_file: Annotated[str | None, Key("File that contains the password and nothing else.")] = None
    ca_file: Annotated[str | None, Key("File of trusted CA certificates; the system's if not set.")] = None
    verify: Annotated[bool, Key("Whether to verify its certificate.")] = True
    chassis: Annotated[str | None, Key("Id of this node's chassis, if the BMC has several.", example='"1"')] = None


class EstimateConfig(Section, frozen=True):
    """Estimate of the node's power, used if nothing measures it (racks.md)."""

    factor: Annotated[float, Key("The power of the GPUs times this factor,", least="1", most="3")] = 1.1
    per_gpu: Annotated[float, Key("plus this much for each GPU.", Notation.POWER, "0W", most="10kW")] = 212.5


class ReplayConfig(Section, frozen=True):
    """With `devices: replay`: a recording that is shown as if it were now (recordings.md)."""

    file: Annotated[str | None, Key("The recording.", restart=True, example="incident.coldplate")] = None
    node: Annotated[
        str | None,
        Key("Whose part of a recording of several nodes; the first one's by default.", restart=True, example="n17"),
    ] = None
    speed: Annotated[float, Key("How many times as fast as it was.", least="0.1", most="1000", restart=True)] = 1.0
    loop: Annotated[bool, Key("Whether it restarts when it ends.", restart=True)] = False


class BackendsConfig(Section, frozen=True):
    """Where readings come from."""

    devices: Annotated[
        str, Key("Source of GPU readings; auto is nvml if a driver is installed.", words=DEVICES, restart=True)
    ] = "auto"
    scenario: Annotated[
        str | None, Key("With synthetic: a scenario from synthetic.md, or a file.", restart=True, example="straggler")
    ] = None
    replay: ReplayConfig = ReplayConfig()
    trace: Annotated[
        str | None,
        Key(
            "With trace: driver calls that stand in for NVML, or a bundle of them (operations.md).",
            restart=True,
            example="node7.tar.gz",
        ),
    ] = None
    infiniband: Annotated[bool, Key("Whether to read InfiniBand and RoCE ports.", restart=True)] = True
    optics: Annotated[
        bool, Key("Whether to read the physical layer of Ethernet ports, and adapters' heat (ports.md).", restart=True)
    ] = True
    host: Annotated[bool, Key("Whether to read processors, memory, disks and network.", restart=True)] = True
    power: Annotated[
        tuple[str, ...],
        Key("Sources of node power; the first that covers the whole node is used.", words=POWER_SOURCES, restart=True),
    ] = POWER_SOURCES
    redfish: Annotated[RedfishConfig | None, Key("A BMC that reports the node's power.", restart=True)] = None
    equipment: Annotated[
        bool, Key("Whether to read leak detectors and coolant from that BMC (racks.md).", restart=True)
    ] = True
    estimate: EstimateConfig = EstimateConfig()
    expected_gpus: Annotated[
        int | None,
        Key("GPUs that the node should have; all ever seen if not set.", least="0", most="1000", example="8"),
    ] = None


class JobsConfig(Section, frozen=True):
    """How to find the jobs that hold GPUs (jobs.md)."""

    sources: Annotated[
        tuple[str, ...], Key("Sources to use; all, or [] for none.", restart=True, example="[slurm]")
    ] = ("all",)
    mapping_dir: Annotated[
        str | None, Key("Directory of dcgm-exporter's --hpc-job-mapping-dir.", restart=True, example="/run/jobs")
    ] = None
    mapping_names: Annotated[
        str,
        Key(
            "Which numbers name its files, and those of /run/gpustat: nvidia-smi's, or those of /dev/nvidia*.",
            words=MAPPING_NAMES,
            restart=True,
        ),
    ] = INDEX
    trust_environment: Annotated[
        tuple[str, ...],
        Key("Schedulers whose variables are trusted in every process.", restart=True, example="[slurm]"),
    ] = ()


class MetricsConfig(Section, frozen=True):
    """Which metrics are exposed. Rules on the node can read all of them."""

    profile: Annotated[
        str, Key("How much of the catalogue; none shows only what include names (metrics.md).", words=PROFILES)
    ] = "default"
    disable: Annotated[
        tuple[str, ...], Key("Groups of metrics to leave out, with *.", example='["infiniband-*", pcie, rolling]')
    ] = ()
    include: Annotated[
        tuple[str, ...], Key("Names of further metrics, with *.", example='["coldplate_gpu_pcie_lane_*"]')
    ] = ()
    exclude: Annotated[
        tuple[str, ...], Key("Names of metrics to leave out, with *.", example="[coldplate_gpu_clock_min_hertz]")
    ] = ()
    compatibility: Annotated[
        tuple[str, ...],
        Key("Exporters whose names are served beside coldplate's (install.md).", words=NEIGHBOURS, example="[dcgm]"),
    ] = ()
    hostname_label: Annotated[
        str, Key("How the dcgm names spell the label with the host's name; both for either.", words=HOSTNAME_LABELS)
    ] = "both"
    dcgm_labels: Annotated[
        tuple[str, ...],
        Key("Labels that the dcgm names have besides.", words=DCGM_LABELS, example="[DCGM_FI_DEV_SERIAL]"),
    ] = ()


class LoginConfig(Section, frozen=True):
    """How the agent logs in to a server."""

    username: Annotated[str, Key("User name to log in with.")] = ""
    password_file: Annotated[str | None, Key("File that contains the password and nothing else.")] = None
    bearer_token_file: Annotated[str | None, Key("File that contains a token; replaces user name and password.")] = None
    ca_file: Annotated[str | None, Key("File of trusted CA certificates; the system's if not set.")] = None
    cert_file: Annotated[str | None, Key("File of the certificate to show the server, in PEM.")] = None
    key_file: Annotated[str | None, Key("File of the key of this certificate, in PEM.")] = None
    server_name: Annotated[str | None, Key("Name in the server's certificate; its host name if not set.")] = None
    verify: Annotated[bool, Key("Whether to verify the server's certificate.")] = True


class PeerConfig(LoginConfig, frozen=True):
    """How to reach the agents of the other nodes."""

    scheme: Annotated[str, Key("URL scheme of the peers.", words=("http", "https"))] = "http"


class BreakerConfig(Section, frozen=True, rename={"kind": "class"}):
    """A breaker, by its name; one with the name of a feed carries an even share."""

    kind: Annotated[str, Key("Class of the breaker, which sets its trip curve.", words=BREAKERS, example="ul489")]
    rating: Annotated[
        float, Key("Load that it carries continuously.", Notation.LIMIT, example="{amperes: 60, volts: 415, phases: 3}")
    ]
    share: Annotated[
        float | None, Key("Share of the rack's power that it carries.", above="0", most="1", example="0.5")
    ] = None
    long_delay: Annotated[
        float | None, duration_key("With electronic: delay at 6 times the rating.", "500ms", "60s", example="8s")
    ] = None


class ShelvesConfig(Section, frozen=True):
    """Power shelves."""

    count: Annotated[int, Key("Number of shelves.", least="1", most="100", example="8")]
    rating: Annotated[float, Key("Power that each can supply.", Notation.LIMIT, example="33kW")]
    spare: Annotated[int, Key("How many may fail; less than count.", least="0", most="99")] = 1


class EquipmentConfig(LoginConfig, frozen=True, kw_only=True):
    """A Redfish service of equipment that serves the rack, under a name of your choice (racks.md)."""

    url: Annotated[str, Key("URL of the service.", example="https://cdu.example")]


class RackConfig(Section, frozen=True):
    """The rack that feeds this node (racks.md)."""

    name: Annotated[str | None, Key("Name of the rack; or set node.rack.", example="r12")] = None
    power_budget: Annotated[
        float | None,
        Key("Limit for all its nodes together: power, apparent power or current.", Notation.LIMIT, example="40.8kW"),
    ] = None
    power_factor: Annotated[float, Key("Power factor for limits in volt-amperes and amperes.", above="0", most="1")] = (
        POWER_FACTOR
    )
    feeds: Annotated[
        dict[str, Annotated[float, Notation.LIMIT]],
        Key("Limit of each feed.", Notation.LIMITS, example="{a: 34.5kVA, b: {amperes: 180, volts_dc: 800}}"),
    ] = {}
    breakers: dict[str, BreakerConfig] = {}
    shelves: ShelvesConfig | None = None
    nodes_expected: Annotated[
        int | None, Key("Number of nodes; this one and its peers if not set.", least="1", most="1000", example="4")
    ] = None
    nvlink_domains: Annotated[
        int | None,
        Key("NVLink domains of its GPUs; without it, more than one raise an alert.", least="1", most="72", example="2"),
    ] = None
    node_nameplate: Annotated[
        float | None, Key("Power to assume for a silent node.", Notation.LIMIT, example="10.2kW")
    ] = None
    peers: Annotated[
        tuple[str, ...],
        Key(
            "Agents of its nodes: host:port, dns+name:port, or a file_sd file; may include this node.",
            example="[node-2:19400, dns+rack-r12.example:19400, peers.yml]",
        ),
    ] = ()
    peer: PeerConfig = PeerConfig()
    equipment: Annotated[
        dict[str, EquipmentConfig], Key("Equipment that serves the rack, by name; one agent asks it.", restart=True)
    ] = {}


class RuleChangeConfig(Section, frozen=True, rename={"hold": "for"}):
    """Changes to those rules of an alert that have one severity, by that."""

    hold: Annotated[
        float | None, duration_key("How long the alert is pending before it fires.", "0s", "365d", example="10m")
    ] = None
    keep_firing_for: Annotated[
        float | None, duration_key("How long it keeps firing after its condition clears.", "0s", "365d", example="1m")
    ] = None
    labels: Annotated[dict[str, str], Key("Labels to add or change.", example="{severity: info}")] = {}
    annotations: Annotated[dict[str, str], Key("Annotations to add or change.", example="{team: hpc}")] = {}
    thresholds: Annotated[
        dict[float, float], Key("Numbers in its query, each with its replacement.", Notation.NUMBERS, example="{5: 8}")
    ] = {}
    expr: Annotated[str | None, Key("Query that replaces its own.")] = None


class OverrideConfig(RuleChangeConfig, frozen=True, rename={"hold": "for"}):
    """Changes to an alert of the rule files, by its name."""

    severity: dict[str, RuleChangeConfig] = {}


class RulesConfig(Section, frozen=True):
    """The rules that the agent evaluates (rules.md)."""

    files: Annotated[
        tuple[str, ...],
        Key(
            "Prometheus rule files, or patterns; builtin is the pack, advice its optional file, [] is no rules.",
            example="[builtin, advice, site/*.yml]",
        ),
    ] = ("builtin",)
    interval: Annotated[float, duration_key("Interval of groups that set none.", "1s", "60s")] = 1.0
    disable: Annotated[tuple[str, ...], Key("Alerts to disable, with *.", example="[GpuHot]")] = ()
    override: dict[str, OverrideConfig] = {}
    memory: Annotated[float, size_key("Memory for the samples that rules read.", "1MiB", "64GiB")] = 64 * 2.0**20
    runbook_base: Annotated[
        str | None,
        Key(
            "Base of runbook_url: where `coldplate render runbooks` is served; the agents' own pages if not set.",
            example="https://docs.example/runbooks",
        ),
    ] = None


class ReceiverConfig(LoginConfig, frozen=True):
    """Alertmanagers, and how to log in."""

    urls: Annotated[
        tuple[str, ...], Key("URLs; each is sent every alert.", example='["http://am-0.example:9093"]')
    ] = ()
    timeout: Annotated[float, duration_key("Timeout of a request.", "100ms", "60s")] = 10.0


class WebhookConfig(ReceiverConfig, frozen=True):
    """Receivers of Alertmanager's webhook payload, and how to log in."""

    urls: Annotated[tuple[str, ...], Key("URLs; each is sent every alert.", example='["https://hook.example"]')] = ()


class NotifyConfig(Section, frozen=True):
    """Where alerts are sent (rules.md)."""

    log: Annotated[bool, Key("Whether to write alerts to the log.")] = True
    alertmanager: ReceiverConfig = ReceiverConfig()
    webhook: WebhookConfig = WebhookConfig()
    resend: Annotated[float, duration_key("How often to resend an alert that is still firing.", "1s", "1h")] = 60.0
    labels: Annotated[
        dict[str, str], Key("Labels to add to alerts that lack them, like external_labels.", example="{site: north}")
    ] = {}
    inhibition: Annotated[bool, Key("Whether to hold back alerts that are effects of another one that fires.")] = True


class RecorderConfig(Section, frozen=True):
    """The flight recorder: keeps the last minutes, and writes them down around events (recordings.md)."""

    history: Annotated[
        float, duration_key("How much to keep in memory; 0s is no flight recorder.", "0s", "1d", restart=True)
    ] = 900.0
    dump_on: Annotated[tuple[str, ...], Key("Events around which a file is written.", words=TRIGGERS, restart=True)] = (
        TRIGGERS
    )
    directory: Annotated[
        str | None,
        Key("Directory for the files; flight in state_dir if not set.", restart=True, example="/scratch/flight"),
    ] = None
    max_size: Annotated[
        float, size_key("Limit on all files together; the oldest go first.", "1MiB", "1TiB", restart=True)
    ] = 2.0**30


class WebConfig(Section, frozen=True):
    """The agent's HTTP server."""

    listen: Annotated[
        tuple[str, ...], Key("Addresses to listen on: host:port, :port or [IPv6 address]:port.", restart=True)
    ] = (":19400",)
    config_file: Annotated[
        str | None,
        Key(
            "File with TLS, passwords and headers, as all of Prometheus's exporters have it (http.md).",
            restart=True,
            example="/etc/coldplate/web.yml",
        ),
    ] = None
    telemetry_path: Annotated[str, Key("Path of the metrics.", restart=True)] = "/metrics"
    enable_lifecycle: Annotated[bool, Key("Whether POST /-/reload is allowed.", restart=True)] = False
    max_connections: Annotated[int, Key("Limit on open connections.", least="1", most="10000", restart=True)] = 64


class Config(Section, frozen=True):
    """The whole file."""

    node: NodeConfig = NodeConfig()
    sampling: SamplingConfig = SamplingConfig()
    overhead: OverheadConfig = OverheadConfig()
    backends: BackendsConfig = BackendsConfig()
    jobs: JobsConfig = JobsConfig()
    metrics: MetricsConfig = MetricsConfig()
    rack: RackConfig = RackConfig()
    rules: RulesConfig = RulesConfig()
    notify: NotifyConfig = NotifyConfig()
    recorder: RecorderConfig = RecorderConfig()
    web: WebConfig = WebConfig()
    expectations: Annotated[
        str,
        Key(
            "What the node should be (terminal.md): auto by its GPUs, none, a shipped name, or a file.",
            example="site.yaml",
        ),
    ] = "auto"
    state_dir: Annotated[
        str | None,
        Key(
            "Directory for alert state and GPU inventory; systemd's state directory or /var/lib/coldplate if not set.",
            restart=True,
            example="/var/lib/coldplate",
        ),
    ] = None
    source: ConfigSource = msgspec.field(default=ConfigSource(), name="")
    """No key: see `agent.config.reading`."""
