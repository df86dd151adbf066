"""Trees of templates are kept while there is room for them, and what is printed does not depend on it."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from alerts.template import Root, compile_template
from alerts.template.bodies import forget_bodies

ROOT = Root({"gpu": "7"}, 1.5, {}, "")


def text(number: int) -> str:
    return f"number {number}: {{{{ $labels.gpu }}}} is at {{{{ $value }}}}"


@pytest.fixture(autouse=True)
def _fresh() -> object:
    forget_bodies()
    yield
    forget_bodies()


def test_what_is_printed_does_not_depend_on_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = [compile_template(text(number), "A") for number in range(50)]
    for most in (0, 100, 10_000):
        monkeypatch.setattr("alerts.template.bodies.MOST_CHARACTERS", most)
        forget_bodies()
        for _ in range(10):
            printed = [template.render(ROOT, lambda _: ()) for template in templates]
            assert printed == [f"number {number}: 7 is at 1.5" for number in range(50)]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.template.bodies.MOST_CHARACTERS", 10_000)
    templates = [compile_template(text(number), "A") for number in range(1_000)]
    templates[0].render(ROOT, lambda _: ())
    gc.collect()
    tracemalloc.start()
    for template in templates:
        template.render(ROOT, lambda _: ())
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 50_000 < kept < 50 * 10_000


def test_templates_of_one_text_name_their_own_alert_when_they_fail() -> None:
    """Their trees are one, and the name is in the error alone."""
    source = '{{ template "__alert_B" }}{{ define "__alert_B" }}x{{ end }}'
    for alert in ("A", "C"):
        assert compile_template(source, alert).render(ROOT, lambda _: ()) == "x"
    with pytest.raises(Exception, match="__alert_B"):
        compile_template(source, "B")
