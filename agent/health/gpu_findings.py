"""Find whether the node's GPUs are there, alike, and of the kind and the settings that they should have.

Other findings use what compares one metric of all GPUs with its expectation, and names several GPUs in one text.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from operator import eq

from msgspec import Struct

from agent.health.expectations import Expected
from agent.health.seen_node import SeenNode, name_of, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu, Outcome

NOBODY = "no GPU answers"
Show = Callable[[float], str]


class GpuFact(Struct, frozen=True):
    """What each GPU should show: a metric for which `is_met` holds, of the value and what is expected.

    `key` is that of the expectation. `expected` and `show` write what is expected and a value for people, `remedy` may
    have the first in braces, `verdict` is that on a GPU which differs.
    """

    key: str
    metric: str
    expected: Show
    is_met: Callable[[float, float], bool]
    show: Show
    verdict: Verdict
    remedy: str

    def __call__(self, view: SeenNode, expected: Expected) -> HealthFinding | None:
        """Return the finding. It leaves out a silent GPU, which has a finding of its own."""
        limit = getattr(expected.node, self.key)
        if limit is None:
            return None
        text = self.expected(limit)
        values = view.of_gpus(self.metric)
        differing = {gpu: self.show(value) for gpu, value in values.items() if not self.is_met(value, limit)}
        if differing:
            return HealthFinding(self.verdict, text, group_by_text(differing), self.remedy.format(limit))
        if silent := unread(view, self.metric, values):
            return HealthFinding(Verdict.UNKNOWN, text, group_by_text(silent), UNREAD)
        if not values:
            return HealthFinding(Verdict.SKIPPED, text, "not reported by these GPUs")
        return HealthFinding(Verdict.OK, text, group_by_text({gpu: self.show(v) for gpu, v in values.items()}))


UNREAD = "see why it was not read (coldplate once --format json); a longer --timeout may help"


def unread(view: SeenNode, metric: str, read_gpus: Container[Gpu]) -> dict[Gpu, str]:
    """Return why the others of the GPUs that answer have no reading of a metric, where they should have one."""
    return {
        gpu: view.why_absent(gpu, metric) for gpu in view.answering if gpu not in read_gpus and view.offers(gpu, metric)
    }


def group_by_text(texts: Mapping[Gpu, str]) -> str:
    """Return the texts of the GPUs, each text once with all GPUs that have it."""
    groups: dict[str, list[Gpu]] = defaultdict(list)
    for gpu, text in texts.items():
        groups[text].append(gpu)
    return "; ".join(f"{numbers(gpus)}: {text}" for text, gpus in groups.items())


def gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def on_or_off(value: float) -> str:
    return "on" if value else "off"


MEMORY = "coldplate_gpu_memory_total_bytes"
LIMIT = "coldplate_gpu_power_limit_watts"
LIMIT_DEFAULT = "coldplate_gpu_power_limit_default_watts"
ECC = "coldplate_gpu_ecc_enabled"
PERSISTENCE = "coldplate_gpu_persistence_enabled"
ALIKE = (
    (MEMORY, "memory", gibibytes),
    (LIMIT_DEFAULT, "default power limit", "{:g} W".format),
    ("coldplate_gpu_pcie_link_generation_max", "PCIe generation", "{:g}".format),
    ("coldplate_gpu_pcie_link_width_max", "PCIe lanes", "{:g}".format),
)
"""What does not differ between GPUs of one node, unless one of them is not what it should be."""
METRICS = (*(metric for metric, _, _ in ALIKE), LIMIT, ECC, PERSISTENCE)


def driver(view: SeenNode, expected: Expected, devices: str) -> HealthFinding:
    """Return whether the devices could be read at all; `devices` is the family that was asked."""
    expectation = "the driver answers"
    report = view.reports.get(devices)
    if view.answering:
        return HealthFinding(Verdict.OK, expectation, f"{len(view.answering)} GPUs answer")
    if report is None or report.outcome is Outcome.OK:
        reason = "no GPU answered in time" if view.gpus or report is None else "the driver shows no GPU"
        return HealthFinding(Verdict.CRITICAL, expectation, reason, HUNG)
    if report.outcome is Outcome.ABSENT and view.expected_gpus and not expected.node.gpus:
        reason = f"{report.detail}; GPUs that are expected: {view.expected_gpus}"
        return HealthFinding(Verdict.CRITICAL, expectation, reason, LOAD)
    if report.outcome is Outcome.ABSENT and not expected.node.gpus:
        return HealthFinding(Verdict.UNKNOWN, expectation, report.detail, "install the driver, or leave this node out")
    return HealthFinding(Verdict.CRITICAL, expectation, report.detail or "it failed", FAILED if report.detail else HUNG)


LOAD = "modprobe nvidia; if that fails, dmesg -T | grep -i nvrm shows why"
HUNG = "look at the kernel log (journalctl -k --grep NVRM), drain the node and restart it"
FAILED = f"do what the reason says; if that does not help, {HUNG}"


def present(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether every GPU that is known of answers."""
    expectation = "every GPU answers"
    if not view.gpus:
        return HealthFinding(Verdict.SKIPPED, expectation, "no GPU is known of")
    silent = [gpu for gpu in view.gpus if gpu not in view.answering]
    if not silent:
        return HealthFinding(Verdict.OK, expectation, f"{len(view.gpus)} of {len(view.gpus)} answer")
    silences = "; ".join(f"{name_of(gpu)}: {view.why_silent(gpu)}" for gpu in silent)
    remedy = "look for XID 79 or 119 (journalctl -k --grep Xid), check lspci, and power-cycle the node"
    return HealthFinding(Verdict.CRITICAL, expectation, silences, remedy)


def count(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether there are as many GPUs as there should be; a silent one counts, and is found by `present`.

    Without an expectation these are as many as the agent expects, such as those on the PCI bus.
    """
    number = expected.node.gpus
    if number is None and view.answering:
        number = view.expected_gpus
    if number is None:
        return None
    if not view.has_devices_report:
        return HealthFinding(Verdict.UNKNOWN, f"{number} GPUs", "no device has been reported yet", UNREAD)
    number_seen, counted = len(view.gpus), f"{len(view.gpus)} GPUs"
    if number_seen == number:
        return HealthFinding(Verdict.OK, f"{number} GPUs", counted)
    remedy = "compare nvidia-smi -L with lspci -d 10de:; one that neither shows has no power or contact"
    return HealthFinding(Verdict.CRITICAL, f"{number} GPUs", counted, remedy)


def model(view: SeenNode, expected: Expected) -> HealthFinding | None:
    """Return whether the GPUs are of the model that they should be."""
    if not expected.node.models:
        return None
    expectation = " or ".join(expected.node.models)
    models = view.facts("model")
    unexpected = {gpu: text for gpu, text in models.items() if text not in expected.node.models}
    if unexpected:
        remedy = "put in the right GPU, or name the expectations of this kind of node with --expect"
        return HealthFinding(Verdict.CRITICAL, expectation, group_by_text(unexpected), remedy)
    if not models:
        return HealthFinding(Verdict.SKIPPED, expectation, NOBODY)
    return HealthFinding(Verdict.OK, expectation, group_by_text(models))


def alike(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether no GPU differs from most others of the node in what GPUs of one kind share."""
    expectation = "all GPUs of the node are alike"
    models = view.facts("model")
    if len(models) < 2:
        return HealthFinding(Verdict.SKIPPED, expectation, "there are not two GPUs to compare")
    odd = _odd(models, "model")
    for metric, fact, show in ALIKE:
        texts = {gpu: show(value) for gpu, value in view.of_gpus(metric).items()}
        odd += _odd(texts, fact)
    if odd:
        return HealthFinding(Verdict.WARNING, expectation, "; ".join(odd), "was a repair done with other parts?")
    return HealthFinding(Verdict.OK, expectation, f"{len(models)} GPUs")


def _odd(by_gpu: dict[Gpu, str], fact: str) -> list[str]:
    texts = list(by_gpu.values())
    usual = max(dict.fromkeys(texts), key=texts.count, default="")
    unusual = {gpu: text for gpu, text in by_gpu.items() if text != usual}
    return [f"{fact} {group_by_text(unusual)}, not {usual}"] if unusual else []


memory = GpuFact(
    "gpu_memory_gib",
    MEMORY,
    "at least {:g} GiB".format,
    lambda value, least: value >= least * 2**30,
    gibibytes,
    Verdict.CRITICAL,
    "a GPU with less memory than its model has is broken or another model: run the field diagnostics",
)
power_limit = GpuFact(
    "gpu_power_limit_watts",
    LIMIT,
    "at least {:g} W".format,
    lambda value, least: value >= least - 0.5,
    "{:g} W".format,
    Verdict.WARNING,
    "nvidia-smi -pl {:g}; if the site limits power, say so in expectations of its own",
)
ecc = GpuFact(
    "ecc", ECC, on_or_off, eq, on_or_off, Verdict.CRITICAL, "nvidia-smi -e 1, then reset the GPUs or restart the node"
)
persistence = GpuFact(
    "persistence", PERSISTENCE, on_or_off, eq, on_or_off, Verdict.WARNING, "systemctl enable --now nvidia-persistenced"
)
"""Whether the driver stays loaded between jobs; else each start takes seconds, and settings are lost."""


Judge = Callable[[SeenNode, Expected], "HealthFinding | None"]
"""One check: None where nothing of the kind is expected."""
