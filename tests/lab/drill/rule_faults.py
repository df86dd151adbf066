"""Rules and configurations that take everything, or are rubbish."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from tests.lab.bench.abuse import rule_file
from tests.lab.bench.report import CannotRunError
from tests.lab.drill.drilled_daemon import Drill, Page
from tests.lab.drill.fault import Fault, grown, shrunk


def _load(drill: Drill) -> None:
    drill.rules(rule_file())


def _load_often(drill: Drill) -> None:
    for _ in range(5):
        _load(drill)


DEAR = r"""
groups:
- name: dear
  rules:
  - {record: steps, expr: 'max_over_time(rate(coldplate_gpu_power_watts[1m])[1d:1ms])'}
  - {record: every, expr: 'sum_over_time({__name__=~".+"}[1h])'}
  - {record: pairs, expr: 'count(group by (__name__, gpu, link) ({__name__=~".+"}) * on () group_left vector(1))'}
- name: backtracks
  rules:
  - alert: Backtracks
    expr: label_replace(coldplate_gpu_up{uuid=~"(([0-9a-z-])+)+!|(a+)+b|.*"}, "x", "$1", "uuid", "(([0-9a-z-])+)+!")
    annotations: {text: '{{ match `(a+)+b` "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" }}'}
- name: bombs
  rules:
  - alert: Runaway
    expr: coldplate_gpu_up > 0
    annotations:
      text: '{{ range query `{job=~".+"}` }}{{ range query `{job=~".+"}` }}{{ .Value }}{{ end }}{{ end }}'
  - alert: Doubles
    expr: coldplate_gpu_up > 0
    annotations: {text: '{{ $x := `aaaaaaaa` }}{{ range query `{job=~".+"}` }}{{ $x = print $x $x }}{{ end }}{{ $x }}'}
  - alert: Pads
    expr: coldplate_gpu_up > 0
    annotations: {text: '{{ reReplaceAll `` `xxxxxxxxxxxxxxxx` (printf `%1000s%1000s%1000s` `a` `b` `c`) }}'}
"""


def _refused_rules() -> Iterator[str]:
    """Files that no start would take, or that cost nothing if one does."""
    expressions = (
        "(" * 10_000 + "1" + ")" * 10_000,
        "up offset 1e300",
        "-" * 30_000 + "1",
        "up" + "[5m:1s]" * 500,
        "sum(" * 5000,
        'up{a=~"' + "(" * 5000 + '"}',
        'up{a=~"(((a{1,100}){1,100}){1,100})"}',
    )
    for expr in expressions:
        yield f"groups: [{{name: refused, rules: [{{record: x, expr: '{expr}'}}]}}]\n"
    yield "groups: " + "[" * 5000
    yield "groups: [{name: refused, rules: [{alert: x, expr: up, annotations: {a: '" + "{{ if 1 }}" * 5000 + "'}}]}]\n"


def _try_refused(drill: Drill) -> None:
    for text in _refused_rules():
        drill.rules(text)
    drill.rules("groups: 1\n")


CONFIG_REFUSED = shrunk("coldplate_config_last_reload_successful")
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


REFUSED = "refused with the place named, the one before stays in force"


def _config(title: str, put: Callable[[Path], object]) -> Fault:
    return Fault(title, REFUSED, lambda drill: drill.configure(put), lambda drill: drill.configure(), CONFIG_REFUSED)


def _all_evaluated(before: Page, now: Page) -> bool:
    return now.total("coldplate_rule_evaluations_total", rule_group="load99") > 0


def _load_dear(drill: Drill) -> None:
    if drill.rules(DEAR) != HTTPStatus.OK:
        raise CannotRunError(f"the rules that take for ever were refused: {drill.log[-300:]}")


RULE_FAULTS = (
    Fault("5,000 rules are loaded", "all are evaluated", _load, lambda drill: drill.rules(), _all_evaluated),
    Fault(
        "5,000 rules are loaded five times",
        "all are evaluated",
        _load_often,
        lambda drill: drill.rules(),
        _all_evaluated,
    ),
    Fault(
        "rules that take for ever",
        "they fail and are counted, the others are evaluated on",
        _load_dear,
        lambda drill: drill.rules(),
        grown("coldplate_rule_evaluation_failures_total"),
    ),
    Fault("rule files that nobody can load", REFUSED, _try_refused, lambda drill: drill.rules(), CONFIG_REFUSED),
)
CONFIG_FAULTS = (
    _config("configuration: a bomb of aliases", lambda path: path.write_text(BOMB)),
    _config(
        "configuration: an anchor that contains itself", lambda path: path.write_text("node: &a {name: *a, b: [*a]}\n")
    ),
    _config("configuration: a FIFO", os.mkfifo),
    _config("configuration: a link to /dev/zero", lambda path: path.symlink_to("/dev/zero")),
    _config("configuration: 100,000 levels", lambda path: path.write_text("a: " + "[" * 100_000)),
)
