"""Find XIDs in the kernel log since boot that ask for a repair: a history that no sample has."""

from collections import defaultdict
from collections.abc import Iterable

from agent.catalogue.xid_triage import ACTIONS, XidClass, called, class_of
from agent.health.seen_node import SeenNode, name_of
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Xid

XID_VERDICTS = {XidClass.POWER: Verdict.WARNING, XidClass.RESET: Verdict.CRITICAL, XidClass.NODE: Verdict.CRITICAL}
"""How bad it is that an XID of a class was reported; the others ask for nothing on the node, as far as is known."""


def xids(view: SeenNode, events: Iterable[Xid] | None, why_unknown: str = "") -> HealthFinding:
    """Return whether the kernel log has no XID since boot that asks for a repair; None where it cannot be read."""
    expectation = "no fatal XID since boot"
    if events is None:
        remedy = "run as root, or with CAP_SYSLOG; --skip xids leaves this out"
        return HealthFinding(Verdict.UNKNOWN, expectation, why_unknown, remedy)
    codes: dict[str, set[int]] = defaultdict(set)
    classes: set[XidClass] = set()
    for event in events:
        xid_class = class_of(event.code, event.text)
        if xid_class in XID_VERDICTS:
            gpu = view.find(event.device)
            codes[name_of(gpu) if gpu is not None else event.device].add(event.code)
            classes.add(xid_class)
    if not codes:
        return HealthFinding(Verdict.OK, expectation, "none")
    texts = "; ".join(
        f"{device}: {', '.join(map(called, sorted(device_codes)))}" for device, device_codes in codes.items()
    )
    gravest = max(classes, key=list(XID_VERDICTS).index)
    remedy = f"{ACTIONS[gravest]}; the kernel log keeps the XID until a restart: --skip xids once it is repaired"
    return HealthFinding(XID_VERDICTS[gravest], expectation, texts, remedy)
