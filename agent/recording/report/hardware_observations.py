"""Observations of hardware faults: XID errors, memory, links, GPUs that do not answer."""

from collections.abc import Iterator

from agent.catalogue.xid_triage import Grade, called
from agent.health.device_states import xid_verdict
from agent.health.verdicts import Verdict
from agent.lib.wording import one_line, utc
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import FAULT, NOTE, Observation, format_gpus, ranges, span_text
from agent.recording.report.run_facts import GpuFacts, RecordedRun
from agent.recording.report.series_statistics import CounterStatistic


def hardware_observations(run: RecordedRun) -> Iterator[Observation]:
    yield from _xids(run)
    for gpu in run.gpus():
        yield from _memory(gpu)
        yield from _silence(gpu)
        yield from _links(gpu)
    yield from _ports(run)
    yield from _switches(run)


def _xids(run: RecordedRun) -> Iterator[Observation]:
    by_code: dict[str, list[tuple[GpuFacts, CounterStatistic]]] = {}
    for gpu in run.gpus():
        for code, counter in gpu.growth_by(chosen.XIDS, "xid").items():
            if counter.growth >= 1:
                by_code.setdefault(one_line(code, 16), []).append((gpu, counter))
    first = {code: min(counter.first_at or 0.0 for _, counter in some) for code, some in by_code.items()}
    for code, some in sorted(by_code.items(), key=lambda one: first[one[0]]):
        gpus = [gpu for gpu, _ in some]
        nonfatal = all(_grades(gpu, code) == {Grade.NONFATAL.value} for gpu in gpus)
        harmless = nonfatal or xid_verdict(code) is Verdict.SKIPPED
        count = sum(counter.growth for _, counter in some)
        whose = "; it usually comes from the program, or follows another error" if harmless else ""
        yield Observation(
            NOTE if harmless else FAULT, "xid",
            f"{format_gpus(gpus)} reported XID {called(code)} {_times(count)}, first at {utc(first[code])}{whose}.",
            tuple(gpu.title for gpu in gpus), {"xids": count},
            "Other XIDs that follow within seconds may be echoes of the first.",
        )  # fmt: skip


def _grades(gpu: GpuFacts, code: str) -> set[str]:
    """Return the severity of this code in the kernel log; nothing for a code that says it by itself."""
    return {
        labels.get("grade", "")
        for labels, counter in gpu.growths(chosen.GRADED_XIDS)
        if labels.get("xid") == code and counter.growth >= 1
    }


def _memory(gpu: GpuFacts) -> Iterator[Observation]:
    for kind, counter in gpu.growth_by(chosen.ECC, "type").items():
        if counter.growth >= 1 and kind.startswith("uncorrect"):
            yield Observation(
                FAULT, "ecc", f"{format_gpus([gpu])} had uncorrectable memory errors: {counter.growth:.0f}.",
                (gpu.title,), {"ecc_errors": counter.growth},
            )  # fmt: skip
    for name, text in ((chosen.REMAP_FAILED, "failed: the GPU must be replaced"),
                       (chosen.REMAP_PENDING, "is pending: the GPU needs a reset")):  # fmt: skip
        if any(state.on for _, state in gpu.states(name)):
            yield Observation(FAULT, "row-remap", f"{format_gpus([gpu])}: a row remap {text}.", (gpu.title,))


def _silence(gpu: GpuFacts) -> Iterator[Observation]:
    silent = gpu.silent_seconds
    if silent >= 1:
        yield Observation(
            FAULT, "silent", f"{format_gpus([gpu])} did not answer for {span_text(silent)}.", (gpu.title,),
            {"silent_seconds": silent}, "What it did meanwhile is not known, and is in no figure.",
        )  # fmt: skip


def _links(gpu: GpuFacts) -> Iterator[Observation]:
    # A link that was never up is not wired, or all are asleep.
    down = {str(link): state.off for link, state in gpu.links() if state.on and state.off >= 1}
    if down:
        most = max(down.values())
        yield Observation(
            FAULT, "nvlink-down",
            f"{format_gpus([gpu])}: NVLink {ranges([*down])} went down, for up to {span_text(most)}.",
            (gpu.title,), {"down_seconds": most},
        )  # fmt: skip
    counters = gpu.growth_by(chosen.NVLINK_ERRORS, "type")
    errors = {kind: counter.growth for kind, counter in counters.items() if counter.growth >= 1}
    if errors:
        counts = ", ".join(f"{count:.0f} {one_line(kind, 32)}" for kind, count in sorted(errors.items()))
        yield Observation(
            FAULT, "nvlink-errors", f"{format_gpus([gpu])} counted errors on its NVLinks: {counts}.", (gpu.title,),
            {"errors": sum(errors.values())}, "Links correct most errors by sending again, which takes time.",
        )  # fmt: skip


def _ports(run: RecordedRun) -> Iterator[Observation]:
    for port, facts in run.ports():
        of = f" of {one_line(facts.node.name, 64)}" if len(run.nodes) > 1 else ""
        shown = one_line(f"{port.device} port {port.port}", 64) + of
        for _, state in facts.states(chosen.PORT_UP):
            if state.on and state.off >= 1:
                text = f"InfiniBand {shown} was down for {span_text(state.off)}."
                yield Observation(FAULT, "port-down", text, figures={"down_seconds": state.off})
        counted = {
            name.removeprefix("coldplate_infiniband_").removesuffix("_total"): counter.growth
            for name in chosen.PORT_ERRORS
            if (counter := facts.growth(name)) is not None and counter.growth >= 1
        }
        if counted:
            counts = ", ".join(f"{count:.0f} {what}" for what, count in counted.items())
            yield Observation(FAULT, "port-errors", f"InfiniBand {shown} counted {counts}.", figures=counted)


def _switches(run: RecordedRun) -> Iterator[Observation]:
    for node in run.nodes:
        of = f" of {one_line(node.name, 64)}" if len(run.nodes) > 1 else ""
        for labels, counter in node.of().growths(chosen.SWITCH_ERRORS):
            if counter.growth >= 1:
                is_fatal = labels.get("grade") == Grade.FATAL.value
                pci, sxid = (one_line(labels.get(name, ""), 16) for name in ("pci", "sxid"))
                what = f"{'the fatal ' if is_fatal else ''}SXid {sxid} {_times(counter.growth)}"
                yield Observation(
                    FAULT if is_fatal else NOTE, "sxid", f"NVSwitch {pci}{of} reported {what}.",
                    figures={"sxids": counter.growth},
                )  # fmt: skip


def _times(count: float) -> str:
    return "once" if count < 2 else f"{count:.0f} times"
