"""promtool's unit tests of queries pass with our answers, at its own small times and in its own series notation."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

from alerts.promql import EvaluationError, Sample, Storage, compile_query, make_labels
from tests.servers import need

SERIES: dict[str, list[Any]] = {
    **{f'temp{{gpu="{gpu}", node="n{gpu // 4}"}}': [40 + gpu + step % 7 for step in range(60)] for gpu in range(8)},
    **{f'total{{gpu="{gpu}"}}': [1000 + (gpu + 1) * 64 * (step % 25) for step in range(60)] for gpu in range(8)},
    'limit{node="n0"}': [0.5] * 60,
    'limit{node="n1"}': [0.25] * 60,
    'ends{how="gap"}': list(range(30)),
    'ends{how="marker"}': [*range(30), "stale"],
    'ends{how="returns"}': [1] * 20 + ["stale"] + ["_"] * 5 + [2] * 30,
}
INSTANTS = (100, 427, 457, 787)
OTHERS = {"util", "odd", "energy_total", "job_info", "latency_bucket"}
# promtool compares to the last bit, and 2.42 takes these by ways that differ in it; it has no NaN to expect either. It
# does not load samples later than the instant, and the steps of these subqueries fall on samples, where 2.x differs.
INEXACT = re.compile(r'avg|stddev|stdvar|deriv|predict|sum\(rate|__name__|^"|log|ln|exp|\^ 0\.5|offset -|\[\w+:\w*\]')


def filled() -> Storage:
    storage = Storage()
    for notation, values in SERIES.items():
        name, labels = notation[:-1].split("{")
        pairs = make_labels(dict(re.findall(r'(\w+)="([^"]*)"', labels)), name)
        for step, value in enumerate(values):
            if value == "stale":
                storage.mark_stale(pairs, 15.0 * step)
            elif value != "_":
                storage.append(pairs, 15.0 * step, float(value))
    return storage


def expectation(query: str, at: float, storage: Storage) -> dict[str, Any] | None:
    """One of promtool's tests, or None for an answer that its format cannot hold."""
    try:
        answer = compile_query(query).evaluate(storage, at)
    except EvaluationError:
        return None
    if not isinstance(answer, list):
        answer = [Sample((), at, answer.value)] if isinstance(answer.value, float) else []
    if any(math.isnan(sample.value) for sample in answer):
        return None
    samples = [
        {
            "labels": "{" + ", ".join(f"{k}={json.dumps(v)}" for k, v in sample.labels) + "}",
            "value": number(sample.value),
        }
        for sample in answer
    ]
    return {"expr": query, "eval_time": f"{at:.0f}s", "exp_samples": samples}


def number(value: float) -> str | float:
    return value if math.isfinite(value) else f"{value:+}".replace("inf", ".inf")


def unquoted(text: str) -> str:
    """The file in JSON, which YAML includes but for the infinities."""
    return re.sub(r'"([+-]\.inf)"', r"\1", text)


def test_promtool_expects_what_we_answer(corpus: ModuleType, tmp_path: Path) -> None:
    promtool = need("promtool", left_out="nothing compares our answers with its own")
    renamed = [query.replace("energy_total", "total").replace("util", "temp") for query in corpus.QUERIES]
    fitting = [q for q in renamed if not OTHERS & set(re.findall(r"\w+", q)) and not INEXACT.search(q)]
    storage = filled()
    tests = [expectation(query, float(at), storage) for query in dict.fromkeys(fitting) for at in INSTANTS]
    wanted = [each for each in tests if each is not None]
    assert len(wanted) > 500
    document = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": " ".join(map(str, v))} for name, v in SERIES.items()],
                "promql_expr_test": wanted,
            }
        ],
    }
    (tmp_path / "test.yml").write_text(unquoted(json.dumps(document)))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[:5000]
