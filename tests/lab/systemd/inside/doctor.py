"""What doctor says of a real installation, as root and as anybody."""

from __future__ import annotations

import json

from inside.tools import UNIT, CheckError, check, sh

WELL = ("configuration", "agent", "broker", "port", "rules", "state", "unit")
"""Subjects in which nothing may be wrong on a machine that was installed by the book."""


def _findings(*before: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(sh(*before, "coldplate", "doctor", "--json", check=False))["findings"]
    return found


def _wrong(found: list[dict[str, str]], subjects: tuple[str, ...] = WELL) -> list[str]:
    wrong = (each for each in found if each["subject"] in subjects and each["verdict"] != "OK")
    return [f"{each['subject']}: {each['found']}" for each in wrong]


@check("doctor")
def all_is_well() -> str:
    found = _findings()
    if _wrong(found):
        raise CheckError("; ".join(_wrong(found)))
    said = {each["found"] for each in found}
    missed = {"/run/coldplate-broker.sock answers", "the agent reads it", "the agent sees what doctor sees"} - said
    if missed:
        raise CheckError(f"it does not say {missed}: {'; '.join(sorted(said))}")
    return f"{len(found)} lines; besides: {'; '.join(_wrong(found, tuple(each['subject'] for each in found)))}"


@check("doctor as nobody")
def anybody_may_ask() -> str:
    found = _findings("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    wrong = _wrong(found, tuple(each for each in WELL if each != "state"))
    if wrong:
        raise CheckError("; ".join(wrong))
    return "the same, but for what only root may ask the broker, and the state directory, which only root may see"


@check("doctor without the agent")
def what_is_stopped_is_said() -> str:
    sh("systemctl", "stop", UNIT, "coldplate-broker.socket")
    try:
        found = {(each["subject"], each["verdict"]): each["found"] for each in _findings()}
    finally:
        sh("systemctl", "start", "coldplate-broker.socket", UNIT)
    told = [found.get(("unit", "FAIL"), ""), found.get(("agent", "WARN"), ""), found.get(("broker", "WARN"), "")]
    if not all(told):
        raise CheckError(f"{found}")
    return "; ".join(told)
