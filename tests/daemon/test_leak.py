"""A leak, from the management controller to the alert."""

from __future__ import annotations

import json

from tests.equipment.conftest import Cooled
from tests.power.conftest import Controller, controller

__all__ = ["controller"]

CONFIG = """\
sampling: {{fast: 250ms, slow: 500ms, cold: 1s}}
backends: {{host: false, infiniband: false, power: [], redfish: {{url: '{url}'}}}}
"""


def test_a_leak_is_on_the_page_and_an_alert(start, controller: Controller) -> None:
    node = Cooled(controller)
    node.serve("Chassis_0", LeakDetection=node.leaks("Chassis_0", ColdPlate="Critical", Manifold="OK"))
    daemon = start("--backend", "none", config=CONFIG.format(url=controller.url))

    def said() -> set[tuple[str, str]]:
        rows = [
            dict(labels)
            for (name, labels), value in daemon.page().items()
            if name == "coldplate_leak_detector_state" and value == 1
        ]
        return {(row["detector"], row["state"]) for row in rows}

    def firing() -> set[tuple[str, str]]:
        alerts = json.loads(daemon.get("/api/v1/alerts"))["data"]["alerts"]
        return {(each["labels"]["alertname"], each["labels"].get("detector", "")) for each in alerts}

    daemon.until("detectors", lambda: said() == {("ColdPlate", "critical"), ("Manifold", "ok")}, 20)
    daemon.until("the alert", lambda: ("LeakDetected", "ColdPlate") in firing(), 20)
    assert ("LeakDetected", "Manifold") not in firing()
