"""Each kind of thing that the table "Adding things" names is added to a copy of the product, which then has it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.daemon.conftest import RunningDaemon
from tests.fakes.nvml import build
from tests.jobs.rig import Proc
from tests.lab.additions.conftest import ProductCopy, table
from tests.lab.fleet.engines import Inbox

Serve = Callable[..., RunningDaemon]

NOTHING_ELSE = "backends: {host: false, infiniband: false, power: [], devices: none}\n"
"""A configuration in which no source is read but those that have no key."""

METRIC = """\
    gauge("coldplate_gpu_power_limit_requested_watts", Gpu, "Power limit that was asked for.",
          Lane.FAST, Field(nvml.FI_DEV_POWER_REQUESTED_LIMIT, MILLI), span=WATTS_SPAN),
"""
BEFORE_METRIC = '    counter("coldplate_gpu_energy_joules_total"'


def test_an_nvml_metric(product: ProductCopy, library: Path) -> None:
    product.edit("agent/catalogue/gpu.py", BEFORE_METRIC, METRIC)
    product.edit("agent/catalogue/nvml_constants.py", "FI_DEV_REMAPPED_COR", "FI_DEV_POWER_REQUESTED_LIMIT = 192\n")
    product.touches_what_is_said_of("a metric that NVML or sysfs already serves")
    page = product.run("once", "--backend", "nvml", LD_LIBRARY_PATH=str(library))
    assert re.search(r'(?m)^coldplate_gpu_power_limit_requested_watts\{gpu="0",uuid=".*"\} 700\.0$', page)
    page = product.run("once", "--backend", "synthetic")
    assert page.count("coldplate_gpu_power_limit_requested_watts{") == 8
    assert "`coldplate_gpu_power_limit_requested_watts`" in product.run("render", "metrics")
    product.run("render", "metrics", "--output", "docs/metrics.md")
    product.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/structure/test_catalogue.py")


BACKEND = '''\
"""How loud it is in the room."""

from agent.backends.protocol import BackendSample
from agent.backends.registration import BackendContext
from agent.catalogue import BY_NAME
from agent.model import Lane, Node, Reading, Series


class MicrophoneBackend:
    name = "microphone"
    lanes = frozenset({Lane.FAST})
    shortest = 0.0

    def read(self, lane, now):
        return BackendSample([Reading(Series(BY_NAME["coldplate_node_noise_ratio"], Node()), 0.25)], calls=1)

    def close(self):
        pass


def make_backend(context: BackendContext) -> MicrophoneBackend:
    return MicrophoneBackend()
'''
BACKEND_ROW = """\
    gauge("coldplate_node_noise_ratio", Node, "How loud it is.", Lane.FAST, Source("a microphone"), span=(0, 1)),
"""


def test_a_source_of_readings(product: ProductCopy) -> None:
    product.add("agent/backends/microphone.py", BACKEND)
    product.edit("agent/catalogue/node.py", '    gauge("coldplate_node_cpus"', BACKEND_ROW)
    product.touches_what_is_said_of("a source of readings")
    page = product.run("once", *product.configure(NOTHING_ELSE)).splitlines()
    assert "coldplate_node_noise_ratio 0.25" in page
    assert 'coldplate_backend_up{backend="microphone"} 1' in page


FAMILY = '''\
"""GPUs of another maker."""

from agent.backends.protocol import BackendSample, Roster
from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Lane, Reading, Series


class AcmeGpu:
    def __init__(self, index):
        self.gpu = Gpu(str(index), f"ACME-{index}")
        self.key = self.gpu.uuid
        self.identity = GpuIdentity(self.gpu, slot=f"0000:{index:02x}:00.0", serial=str(index), model="Acme One")

    def read(self, lane, now):
        if lane is not Lane.FAST:
            return BackendSample()
        rows = {"coldplate_gpu_temperature_celsius": 91.0, "coldplate_gpu_acme_fan_ratio": 0.5}
        return BackendSample([Reading(Series(BY_NAME[name], self.gpu), value) for name, value in rows.items()], calls=1)


class AcmeSource:
    name = "acme"

    def __init__(self):
        self.gpus = [AcmeGpu(index) for index in range(2)]

    def open(self, now):
        return self.gpus

    def roster(self, now):
        return Roster(tuple(self.gpus))

    def events(self, timeout):
        return ()

    def close(self):
        pass


def make_source(options):
    return AcmeSource()
'''
FAMILY_ROW = """\
    gauge("coldplate_gpu_acme_fan_ratio", Gpu, "Speed of the fan.", Lane.FAST, DeviceValue("acme", "fan1_input"),
          span=(0, 1)),
"""


def test_a_family_of_devices(product: ProductCopy, serve: Serve) -> None:
    product.add("agent/backends/acme/__init__.py", FAMILY)
    product.edit("agent/config/words.py", '"replay", "trace", "none")', '"acme", ')
    product.edit("agent/catalogue/gpu.py", BEFORE_METRIC, FAMILY_ROW)
    product.edit("agent/catalogue/gpu.py", "Derived, Field, Gpm, Source, counter", "DeviceValue, ")
    product.edit(
        "agent/catalogue/gpu.py", 'Call("nvmlDeviceGetTemperatureV"), span', 'DeviceValue("acme", "temp1_input"), '
    )
    product.touches_what_is_said_of("a family of devices beside NVIDIA's")
    assert "auto, nvml, synthetic, acme, replay, trace, none" in " ".join(product.run("run", "--help").split())
    assert "acme: fan1_input" in product.run("render", "metrics")
    rule = 'groups: [{name: g, rules: [{alert: Warm, expr: "coldplate_gpu_temperature_celsius > 90"}]}]\n'
    (product.root / "warm.yml").write_text(rule)
    config = product.configure(f"rules: {{files: [warm.yml]}}\nsampling: {{fast: 200ms}}\n{NOTHING_ELSE}")
    daemon = serve("--backend", "acme", *config)

    def fires() -> bool:
        alerts = json.loads(daemon.get("/api/v1/alerts"))["data"]["alerts"]
        return {each["labels"]["gpu"] for each in alerts if each["state"] == "firing"} == {"0", "1"}

    daemon.until("the rule fires for both GPUs", fires, 30)
    assert daemon.family("coldplate_gpu_up") == {"0": 1.0, "1": 1.0}
    assert daemon.family("coldplate_gpu_acme_fan_ratio") == {"0": 0.5, "1": 0.5}
    assert daemon.family("coldplate_backend_up", "backend")["acme"] == 1.0
    assert "Acme One" in daemon.get("/")


SCHEDULER = '''\
"""Cobalt."""

import re

from agent.backends.jobs.job import Job
from agent.backends.jobs.job import Scheduler


def job(env, within):
    return Job("cobalt", within, name=env.get("COBALT_JOBNAME", ""))


SCHEDULER = Scheduler(
    "cobalt", 15, (re.compile(r"/cobalt/job-(?P<id>[0-9]+)"),), frozenset({"COBALT_JOBNAME"}), job
)
'''


def test_a_scheduler(product: ProductCopy, serve: Serve, library: Path, tmp_path: Path) -> None:
    product.add("agent/backends/jobs/schedulers/cobalt.py", SCHEDULER)
    names, schedulers = "flux, htcondor, kubernetes, lsf", "agent/backends/jobs/schedulers/__init__.py"
    product.edit(schedulers, f"import {names}", "import cobalt  # noqa: F401\nfrom agent.backends.jobs.schedulers ")
    product.edit(schedulers, f"{names}, nomad, oar, pbs, ray, sge, slurm))", "cobalt, ")
    product.edit("agent/broker/questions.py", 'b"SLURM_JOB_ID', 'b"COBALT_JOBNAME "\n    ')
    product.touches_what_is_said_of("a scheduler")
    proc = Proc(tmp_path / "proc")
    proc.process(4711, "/cobalt/job-7/x", {"COBALT_JOBNAME": "weather"}, uid=os.getuid())
    build.command(tmp_path / "control", "process 0 4711")
    quick = "rules: {files: []}\nsampling: {fast: 200ms, slow: 400ms}\n"
    config = product.configure("backends: {host: false, infiniband: false, power: []}\n" + quick)
    told = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(tmp_path / "control")}
    daemon = serve("--backend", "nvml", "--path.procfs", str(proc.root), *config, **told)

    def jobs() -> list[dict[str, str]]:
        return [dict(labels) for name, labels in daemon.page() if name == "coldplate_gpu_job_info"]

    daemon.until("the job is found", lambda: bool(jobs()), 30)
    (found,) = jobs()
    assert (found["scheduler"], found["job_id"], found["gpu"]) == ("cobalt", "7", "0")
    assert 'name="weather"' in daemon.get()


RECEIVER = '''\
"""Alerts to a pager."""

from alerts.notify.delivery import HttpReceiver


class Pager(HttpReceiver):
    name = "pager"
    path = "/page"
    repeats = False
    expires = False

    def encode(self, notices):
        return "\\n".join(dict(notice.alert.labels)["alertname"] for notice in notices).encode()
'''


def test_a_notifier(product: ProductCopy, serve: Serve) -> None:
    product.add("alerts/notify/pager.py", RECEIVER)
    product.edit("agent/wiring/alerting.py", "from alerts.notify.receiver", "from alerts.notify.pager import Pager\n")
    product.edit("agent/wiring/alerting.py", "Webhook)\n", "Pager, ")
    product.edit(
        "agent/config/schema.py", "    webhook: WebhookConfig", "    pager: ReceiverConfig = ReceiverConfig()\n"
    )
    product.touches_what_is_said_of("a notifier")
    assert "`notify.pager.urls`" in product.made("configuration_table.table()")
    (product.root / "r.yml").write_text('groups: [{name: g, rules: [{alert: Always, expr: "vector(1)"}]}]\n')
    with Inbox() as pagers:
        told = f"rules: {{files: [r.yml]}}\nnotify: {{pager: {{urls: ['{pagers.url}']}}}}\n"
        daemon = serve(*product.configure(NOTHING_ELSE + told))
        daemon.until("a page comes", lambda: bool(pagers.posts), 30)
    assert (pagers.posts[0].path, pagers.posts[0].body) == ("/page", b"Always")
    daemon.until(
        "it is counted", lambda: daemon.family("coldplate_notifications_sent_total", "notifier")["pager"] >= 1, 30
    )


ENDPOINT = '''\
"""`/api/v1/greeting`: whoever asks is greeted."""

from http import HTTPStatus

from exporters.endpoint import Endpoint, text


def _greet(context, request):
    return text(HTTPStatus.OK, f"good day from {context.view.node}")


GREETING = Endpoint("/api/v1/greeting", _greet, description="a greeting")
'''


def test_an_endpoint(product: ProductCopy, serve: Serve) -> None:
    product.add("exporters/endpoints/greeting.py", ENDPOINT)
    endpoints = "exporters/endpoints/__init__.py"
    product.edit(endpoints, "from exporters.endpoints.html", "from exporters.endpoints.greeting import GREETING\n")
    product.edit(endpoints, "OVERVIEW, HEALTHY", "GREETING, ")
    product.edit("docs/http.md", "| `/api/v1/rack`", "| `/api/v1/greeting` | GET | a greeting |\n")
    product.touches_what_is_said_of("an endpoint")
    daemon = serve(*product.configure(f"{NOTHING_ELSE}node: {{name: n7}}\n"))
    assert daemon.get("/api/v1/greeting") == "good day from n7\n"
    assert '<li><a href="/api/v1/greeting">/api/v1/greeting</a> a greeting</li>' in daemon.get("/")
    taken = "import sys; from exporters.routes import is_reserved; sys.exit(not is_reserved('/api/v1/greeting'))"
    product.python("-c", taken)


COMMAND = '''\
"""`coldplate greet`: says good day."""

HELP = "say good day"
DESCRIPTION = "Say good day."
EXAMPLES = (("coldplate greet world", "good day to everybody"),)
EXIT_STATUSES = {0: "said"}


def add_arguments(parser):
    parser.add_argument("whom")


def run(arguments):
    print(f"good day, {arguments.whom}")
    return 0
'''


def test_a_command(product: ProductCopy) -> None:
    product.add("agent/commands/greet.py", COMMAND)
    product.touches_what_is_said_of("a command")
    assert re.search(r"(?m)^ +greet +say good day$", product.run("--help"))
    assert product.run("greet", "world") == "good day, world\n"


SCENARIO = "description: Nothing at all happens.\ntopology: dgx-h100\n"


def test_a_scenario(product: ProductCopy) -> None:
    product.add("agent/backends/synthetic/scenarios/nothing.yaml", SCENARIO)
    product.touches_what_is_said_of("a scenario")
    assert "Nothing at all happens." in product.made("scenario_document._shipped()")
    assert 'coldplate_synthetic_info{scenario="nothing"}' in product.run("once", "--scenario", "nothing")


KEY = '    loudness: Annotated[int, Key("How loud.", least="0", most="11")] = 3\n'


def test_a_configuration_key(product: ProductCopy) -> None:
    product.edit("agent/config/schema.py", "    per_gpu: Annotated", KEY)
    product.touches_what_is_said_of("a configuration key")
    assert "`backends.estimate.loudness`" in product.made("configuration_table.table()")
    assert re.search(r"loudness: 3\b", product.run("render", "config-file"))
    words = ("once", *product.configure("backends: {estimate: {loudness: 12}}\n"))
    product.python("-c", f"import sys; from agent.cli import main; sys.exit(main({words!r}) != 2)")


def test_every_row_of_the_table_is_tried_here_or_by_the_tests_of_rules() -> None:
    tried = set(re.findall(r'touches_what_is_said_of\("(.*)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert set(table()) - tried == {"a rule"}
