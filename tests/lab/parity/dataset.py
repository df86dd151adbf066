"""The samples that generated queries are asked over: what makes operators fail, clash, overflow and lose labels."""

import math
import random

from alerts.promql import STALE, Labels, make_labels

START = 1_700_000_000.0
SPACING = 15.0
COUNT = 81
END = START + SPACING * (COUNT - 1)

Points = list[tuple[float, float]]
# No number so small that it has fewer digits: of those Go takes wrong logarithms on x86-64, and right ones elsewhere.
_SMALLEST = 3e-300
_ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, _SMALLEST, 1e300, -1e300, 1e15, -1e15, 9e18, -9.3e18, 253402300800.0)


def samples() -> dict[Labels, Points]:
    """The same at every call: what varies between runs is the queries alone."""
    dice = random.Random(11)
    made: dict[Labels, Points] = {}

    def put(name: str, labels: dict[str, str], values: list[float | None]) -> None:
        times = (START + SPACING * index for index in range(len(values)))
        made[make_labels(labels, name)] = [
            (at, value) for at, value in zip(times, values, strict=True) if value is not None
        ]

    for gpu in range(4):
        own = {"gpu": str(gpu), "node": f"n{gpu // 2}"}
        put("util", own, [round(dice.random(), 3) for _ in range(COUNT)])
        put("temp", {**own, "job": "ab"[gpu % 2]}, [float(40 + gpu + step % 7) for step in range(COUNT)])
        put("job_info", {**own, "job": "ab"[gpu % 2], "user": "u"}, [1.0] * COUNT)
        total, energy = 1e6, list[float | None]()
        for step in range(COUNT):
            total = 5e5 if step == 30 + gpu else total + dice.randrange(100, 300)
            energy.append(None if gpu == 3 and step % 6 == 2 else total)
        put("energy_total", own, energy)
    for job in "ab":
        put("up", {"job": job}, [1.0] * COUNT)
        put("down", {"job": job}, [0.0] * COUNT)
    put("alone", {"job": "a"}, [3.0] * COUNT)
    put("limit", {"node": "n0"}, [0.5] * COUNT)
    put("limit", {"node": "n1"}, [0.25] * COUNT)
    # One label set, two names: whatever drops the name makes them clash, some of them never at one time.
    put("early", {"job": "a"}, [1.0] * 30 + [STALE] + [None] * 50)
    put("late", {"job": "a"}, [None] * 50 + [2.0] * 31)
    for index, value in enumerate(_ODD):
        put("odd", {"kind": f"k{index}"}, [value] * COUNT)
    put("mixed", {"kind": "nan"}, [math.nan if step % 3 else float(step) for step in range(COUNT)])
    put("mixed", {"kind": "falls"}, [float(80 - step) if step % 10 else math.inf for step in range(COUNT)])
    put("ends", {"how": "gap"}, [float(step) for step in range(50)] + [None] * 31)
    put("ends", {"how": "marker"}, [float(step) for step in range(50)] + [STALE] + [None] * 30)
    put("ends", {"how": "returns"}, [1.0] * 40 + [STALE] + [None] * 10 + [2.0] * 30)
    put("typed", {"__type__": "counter", "__unit__": "bytes", "job": "a"}, [float(step) for step in range(COUNT)])
    put("typed", {"__type__": "gauge", "__unit__": "bytes", "job": "b"}, [float(step * step) for step in range(COUNT)])
    put("metric.name", {"label.name": "x y", "job": "é"}, [7.0] * COUNT)
    put("é", {"日本": "語", "job": 'a\nb"c\\d'}, [8.0] * COUNT)
    _histograms(put)
    return made


def _histograms(put) -> None:
    for gpu in range(2):
        for index, bound in enumerate(("0.1", "0.5", "1", "+Inf")):
            counts = [1000.0 + step * (index + 1) * (gpu + 2) for step in range(COUNT)]
            put("latency_bucket", {"gpu": str(gpu), "le": bound}, list(counts))
    shapes = {
        "open": {"1": 5.0, "2": 7.0},
        "empty": {"1": 0.0, "+Inf": 0.0},
        "falls": {"1": 9.0, "2": 7.0, "5": 12.0, "Inf": 12.0},
        "twice": {"1": 3.0, "1.0": 4.0, "2": 8.0, "inf": 9.0},
        "nan": {"1": math.nan, "2": 4.0, "3": math.nan, "4": 6.0, "+Inf": 9.0},
        "all-nan": {"1": math.nan, "2": math.nan, "+Inf": math.nan},
        "negative": {"-2": 2.0, "-1": 4.0, "0": 6.0, "1": 6.0, "+Inf": 8.0},
        "infinite": {"1": math.inf, "2": math.inf, "+Inf": math.inf},
        "unread": {"x": 1.0, "": 2.0, " 1": 3.0, "0x1p1": 4.0, "1_0": 5.0, "1e400": 6.0, "+Inf": 7.0},
        "huge": {"1": 1e308, "2": 1.2e308, "+Inf": 1.7e308},
        "one": {"+Inf": 4.0},
    }
    for shape, buckets in shapes.items():
        for bound, count in buckets.items():
            put("h_bucket", {"shape": shape, "le": bound}, [count] * COUNT)
