"""What every row of the catalogue must satisfy."""

import re

from agent.catalogue import ROLLING, ROWS
from agent.catalogue.bindings import Call, Derived, DeviceValue, Field, Gpm, PortFile, Source
from agent.model import Backend, Gpu, IbPort, Kind, Metric, Node, NvLink, Rack, Unit
from tests.each import for_each


@for_each("row", ROWS)
def test_a_row_has_all_of_a_metric_and_its_name_says_kind_and_unit(row: Metric) -> None:
    assert re.fullmatch(r"coldplate_[a-z][a-z0-9_]*", row.name)
    assert row.help.endswith(".")
    assert len(row.help) <= 140
    assert row.entity in {Node, Gpu, NvLink, IbPort, Rack, Backend}
    assert row.origin
    assert all(isinstance(each, (Field, Call, Gpm, DeviceValue, PortFile, Source, Derived)) for each in row.origin)
    assert row.span[0] <= row.span[1]
    assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)
    assert row.name.endswith("_info") == (row.kind is Kind.INFO)
    if row.unit is not Unit.NONE:
        stem = row.name.removesuffix("_total")
        assert stem.endswith((f"_{row.unit.value}", f"_{row.unit.value}_per_second"))
    for binding in row.origin:
        labels = getattr(binding, "labels", ())
        if isinstance(binding, Call) and binding.name in {
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetMemoryInfo_v2",
        }:
            continue  # their labels name the member of the answer
        if labels:
            assert len(labels) == len(row.labels), row.name


def test_rolling_rows_are_named_before_their_unit() -> None:
    names = [row.name for row in ROLLING["coldplate_gpu_power_watts"]]
    assert names == [f"coldplate_gpu_power_{each}_watts" for each in ("min", "mean", "max")]
