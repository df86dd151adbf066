"""The mask in which the driver tells how the NVLink fabric is for one GPU: from it, a reading for each problem."""

from __future__ import annotations

from agent.catalogue import metric
from agent.catalogue.links import FABRIC_HEALTH
from agent.model import Gap, Gpu, Reading, Reason, Series

PROBLEM = metric("coldplate_gpu_fabric_problem")


class FabricHealth:
    """Reads one GPU's mask; the series are made once."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._aspects = [
            (aspect, {code: Series(PROBLEM, gpu, (("problem", name),)) for code, name in aspect.bad.items()})
            for aspect in FABRIC_HEALTH
        ]

    def read(self, mask: int, readings: list[Reading], gaps: list[Gap]) -> None:
        """What the driver cannot tell is left out, and a newer driver's code is neither a problem nor none."""
        told: list[Reading] = []
        unknown: list[str] = []
        for aspect, problems in self._aspects:
            code = mask >> aspect.shift & (1 << aspect.width) - 1
            if code == aspect.good or code in problems:
                told.extend(Reading(series, float(each == code)) for each, series in problems.items())
            elif code:
                unknown.append(f"code {code} at bit {aspect.shift} is unknown to this version")
        readings.extend(told)
        if unknown:
            gaps.append(Gap(PROBLEM, self._gpu, Reason.MALFORMED, f"fabric health: {'; '.join(unknown)}"))
        elif not told:
            gaps.append(Gap(PROBLEM, self._gpu, Reason.UNSUPPORTED, "fabric health: the driver tells none of it"))
