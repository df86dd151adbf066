"""Reads unit-test files in promtool's format, strictly."""

import contextlib
import glob
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from agent.lib import textfile
from agent.lib.wording import one_line, shown
from agent.lib.yamltree import Bounds, Node
from alerts.packs import MOST_FILES
from alerts.promql.labels import Labels, make_labels
from alerts.yamlnodes import FileError, Reader, TooManyError, line_of, number_of
from tests.rule_tests import notation

FILE_KEYS = ("rule_files", "evaluation_interval", "group_eval_order", "tests")
TEST_KEYS = (
    "interval", "name", "input_series", "alert_rule_test", "promql_expr_test", "external_labels", "external_url",
)  # fmt: skip
BOUNDS = Bounds(depth=16, nodes=1_000_000, characters=16 * 2**20, scalar=2**20)
LARGEST_FILE = 8 * 1024 * 1024
MOST_SAMPLES = 20_000_000
"""Samples of all series of a file up to the last case of their test: a typing error must not use up the memory."""
MOST_STEPS = 1_000_000
"""Evaluations of a test."""

Pairs = tuple[tuple[str, str], ...]
Case = TypeVar("Case")


class TestFileError(FileError):
    """A unit-test file cannot be used."""

    __test__ = False  # pytest would take the name for a test


class ExpectedAlert(Struct, frozen=True, order=True):
    """One alert as a receiver would get it."""

    labels: Labels
    annotations: Pairs


class AlertCase(Struct, frozen=True):
    """The alerts of one name that are expected to fire at a time."""

    at: float
    name: str
    expected: tuple[ExpectedAlert, ...]
    line: int


class QueryCase(Struct, frozen=True):
    """The result of a query at a time."""

    at: float
    expression: str
    expected: tuple[tuple[Labels, float], ...]
    line: int


class Test(Struct, frozen=True):
    """Input series, and the expected results of the rules."""

    __test__ = False  # pytest would take the name for a test

    name: str
    interval: float
    series: tuple[tuple[Labels, notation.Samples], ...]
    alerts: tuple[AlertCase, ...]
    queries: tuple[QueryCase, ...]
    external_labels: Pairs
    external_url: str
    line: int

    @property
    def end(self) -> float:
        """The latest time of any case."""
        return max([0.0, *(case.at for case in self.alerts), *(case.at for case in self.queries)])


class Document(Struct, frozen=True):
    """A whole unit-test file. `unmatched` are the rule_files that name no file."""

    path: str
    rule_files: tuple[Path, ...]
    unmatched: tuple[str, ...]
    interval: float
    order: tuple[str, ...]
    tests: tuple[Test, ...]


def load(path: Path, *, handed: bool = False) -> Document:
    """Return the tests of a file; `handed` allows a pipe of the command line (`read_text`). Raises TestFileError."""
    reader = Reader(str(path))
    document: Document | None = None
    with contextlib.suppress(TooManyError):
        tree = reader.compose(reader.load(path, LARGEST_FILE, handed=handed), BOUNDS)
        document = _UnitTestLoader(reader, path).document(tree)
    if reader.problems or document is None:
        raise TestFileError(reader.in_order())
    return document


class _UnitTestLoader:
    def __init__(self, reader: Reader, path: Path) -> None:
        self._reader = reader
        self._path = path
        self._folder = path.parent if textfile.descriptor_of(path) is None else Path()
        self._samples = 0

    def document(self, tree: Node | None) -> Document:
        reader = self._reader
        fields = reader.fields(tree, FILE_KEYS, "") if tree is not None else {}
        files, unmatched = self._rule_files(fields.get("rule_files"))
        order: dict[str, None] = {}
        for node in reader.items(fields.get("group_eval_order"), "group_eval_order"):
            name = reader.text(node, "group_eval_order")
            if name in order:
                reader.fail(node, "", f"group_eval_order: the group {shown(name)} is repeated; name it once")
            order[name] = None
        interval = reader.duration(fields.get("evaluation_interval"), "evaluation_interval") or 60.0
        tests = [
            self._test(node, f"test {number}", interval)
            for number, node in enumerate(reader.items(fields.get("tests"), "tests"), 1)
        ]
        return Document(str(self._path), files, unmatched, interval, tuple(order), tuple(tests))

    def _rule_files(self, node: Node | None) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """Return the rule files, relative to the test file; names may be patterns."""
        found: list[Path] = []
        unmatched = []
        for item in self._reader.items(node, "rule_files"):
            pattern = str(self._folder / self._reader.text(item, "rule_files"))
            names = sorted(islice(glob.iglob(pattern), MOST_FILES))
            found.extend(Path(name) for name in names)
            if not names:
                unmatched.append(pattern)
        return tuple(found), tuple(unmatched)

    def _test(self, node: Node, where: str, evaluation_interval: float) -> Test:
        reader = self._reader
        fields = reader.fields(node, TEST_KEYS, where)
        name = reader.text(fields.get("name"), f"{where}, name")
        where = f"{where} ({one_line(name, 80)})" if name else where
        labels = reader.strings(fields.get("external_labels"), f"{where}, external_labels")
        test = Test(
            name=name,
            interval=reader.duration(fields.get("interval"), f"{where}, interval") or evaluation_interval,
            series=self._series(fields.get("input_series"), where),
            alerts=self._cases(fields, "alert_rule_test", where, self._alert_case),
            queries=self._cases(fields, "promql_expr_test", where, self._query_case),
            external_labels=tuple((label, text) for label, (text, _) in labels.items()),
            external_url=reader.text(fields.get("external_url"), f"{where}, external_url"),
            line=line_of(node),
        )
        if test.end / evaluation_interval > MOST_STEPS:
            text = f"needs more than {MOST_STEPS} evaluations; use an earlier eval_time or a longer evaluation_interval"
            reader.fail(node, where, text)
        read = int(test.end / test.interval) + 1
        self._samples += sum(min(sum(run.count for run in samples), read) for _, samples in test.series)
        if self._samples > MOST_SAMPLES:
            text = f"with this the file has more than {MOST_SAMPLES} samples up to the last eval_time"
            reader.fail(node, where, f"{text}; use a longer interval or an earlier eval_time")
        return test

    def _series(self, node: Node | None, where: str) -> tuple[tuple[Labels, notation.Samples], ...]:
        reader = self._reader
        found: dict[Labels, notation.Samples] = {}
        for number, each in enumerate(reader.items(node, f"{where}, input_series"), 1):
            here = f"{where}, input_series {number}"
            fields = reader.fields(each, ("series", "values"), here)
            try:
                labels = notation.series(reader.text(fields.get("series"), here))
                found[labels] = notation.values(reader.text(fields.get("values"), here))
            except ValueError as error:
                reader.fail(each, here, str(error))
        return tuple(found.items())

    def _cases(
        self, fields: Mapping[str, Node], key: str, where: str, read: Callable[[Node, str], Case]
    ) -> tuple[Case, ...]:
        nodes = enumerate(self._reader.items(fields.get(key), f"{where}, {key}"), 1)
        return tuple(read(each, f"{where}, {key} {number}") for number, each in nodes)

    def _alert_case(self, node: Node, where: str) -> AlertCase:
        reader = self._reader
        fields = reader.fields(node, ("eval_time", "alertname", "exp_alerts"), where)
        name = reader.text(fields.get("alertname"), where)
        if not name:
            reader.fail(node, where, "alertname: is missing; name the alert")
        expected = []
        for each in reader.items(fields.get("exp_alerts"), f"{where}, exp_alerts"):
            parts = reader.fields(each, ("exp_labels", "exp_annotations"), f"{where}, exp_alerts")
            labels = {**_texts(reader, parts.get("exp_labels"), f"{where}, exp_labels"), "alertname": name}
            annotations = _texts(reader, parts.get("exp_annotations"), f"{where}, exp_annotations")
            expected.append(ExpectedAlert(make_labels(labels), tuple(sorted(annotations.items()))))
        at = reader.duration(fields.get("eval_time"), f"{where}, eval_time") or 0.0
        return AlertCase(at, name, tuple(sorted(expected)), line_of(node))

    def _query_case(self, node: Node, where: str) -> QueryCase:
        reader = self._reader
        fields = reader.fields(node, ("expr", "eval_time", "exp_samples"), where)
        expected = []
        for each in reader.items(fields.get("exp_samples"), f"{where}, exp_samples"):
            parts = reader.fields(each, ("labels", "value"), f"{where}, exp_samples")
            try:
                labels = notation.metric(reader.text(parts.get("labels"), where))
                written = reader.text(parts.get("value"), where)
                value = number_of(written) if written else 0.0
                if value is None:
                    remedy = "write one such as 1.5, .inf or -.inf"
                    raise ValueError(f"value: {shown(written)} is not a number; {remedy}")
                expected.append((labels, float(value)))
            except ValueError as error:
                reader.fail(each, f"{where}, exp_samples", str(error))
        at = reader.duration(fields.get("eval_time"), f"{where}, eval_time") or 0.0
        return QueryCase(at, reader.text(fields.get("expr"), where), tuple(expected), line_of(node))


def _texts(reader: Reader, node: Node | None, where: str) -> dict[str, str]:
    return {name: text for name, (text, _) in reader.strings(node, where).items()}
