"""Runbooks as pages: all of a text, nothing of its markup, and what an alert's link leads to."""

import base64
import re
from hashlib import sha256
from pathlib import Path

import pytest

from agent import catalogue
from alerts import packs
from exporters import markup, metrics_document
from exporters.compatibility import PROFILES
from exporters.http_messages import Request, Response
from exporters.routes import Routes
from tests.asking import ask, context
from tests.each import for_each
from tests.lab.generate import migration_document, runbook_html
from tests.lab.generate.runbook_html import FOLDER, html_of
from tests.report.test_html_report import Page

TEXTS = packs.runbooks()
WORD = re.compile(r"\w+")
NO_WORDS = re.compile(r"^(?:\d+\. |```\w*)", re.MULTILINE)
"""What has letters in Markdown and is not said: the numbers of a list's items, and what a block of code is in."""


class Reader(Page):
    """And the words of its code."""

    def __init__(self, text: str) -> None:
        self.code: list[str] = []
        super().__init__(text)

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if "code" in self._open:
            self.code.append(data)


def get(path: str) -> Response:
    return ask(Routes(context(runbooks=TEXTS)), Request("GET", path))


@for_each("name", sorted(TEXTS))
def test_every_word_of_a_runbook_is_on_its_page_and_nothing_of_its_markup(name: str) -> None:
    """The words in their order; code to the letter; and outside of code no sign that only Markdown has."""
    page, markdown = Reader(TEXTS[name]), (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert WORD.findall(" ".join(page.words)) == WORD.findall(NO_WORDS.sub(" ", markdown))
    for code in re.findall(r"```\w*\n(.*?\n)```|`([^`]+)`", markdown, re.DOTALL):
        assert (code[0] or code[1]) in page.code
    assert not re.search(
        r"[`|]|\*\*|^[#*]", "\n".join(each for each in page.words if each not in page.code), re.MULTILINE
    )


def test_the_pages_are_made_of_the_committed_markdown() -> None:
    for path, text in runbook_html.contents().items():
        assert path.read_text(encoding="utf-8") == text, "make generate"
    assert {path.stem for path in runbook_html.contents()} == set(TEXTS)


@pytest.mark.parametrize("text", ["<script>x</script>", "`<b>`", "# <i>", "- <i>", "```\n<i>\n```", "```\nopen"])
def test_a_text_cannot_contain_markup(text: str) -> None:
    assert not Reader(html_of(text)).tags.keys() & {"script", "b", "i"}


def test_pages_of_alerts_and_their_index_are_there_before_the_first_sample() -> None:
    answer = get("/runbooks/GpuLost")
    page = answer.body.decode()
    assert (answer.status, answer.content_type) == (200, "text/html; charset=utf-8")
    assert "<title>GpuLost</title>" in page
    assert '<meta name="viewport" content="width=device-width' in page
    assert {"h1", "h2", "ol", "pre"} <= Reader(page).tags.keys()
    for index in ("/runbooks", "/runbooks/"):
        assert re.findall(r'href="/runbooks/(\w+)"', get(index).body.decode()) == sorted(TEXTS)
    for path in ("/runbooks/Nothing", "/runbooks/../secret", "/runbooks/GpuLost/", "/runbooksX"):
        assert get(path).status == 404, path


@pytest.mark.parametrize("path", ["/", "/runbooks/"])
def test_a_browser_applies_the_one_style_sheet_and_loads_nothing(path: str) -> None:
    digest = base64.b64encode(sha256(markup.STYLE.encode()).digest()).decode()
    answer = get(path)
    policy = dict(answer.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy, f"set STYLE_HASH to sha256-{digest}"
    assert answer.body.count(b"<style>") == 1
    assert b'style="' not in answer.body


# The metrics reference and the names of other exporters after it are complete, and the committed ones current.
REFERENCE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_committed_reference_is_current() -> None:
    """Our names, and after them those of others."""
    written = REFERENCE.read_text(encoding="utf-8")
    assert written.startswith(metrics_document.render()), "make generate"
    assert written.endswith(migration_document.render()), "make generate"


def test_every_row_has_one_line_of_a_table_which_says_everything_about_it() -> None:
    text = metrics_document.render()
    assert sorted(re.findall(r"(?m)^\| `(coldplate_\w+)` ", text)) == sorted(catalogue.BY_NAME)
    lines = [line.replace(r"\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {10}
    (line,) = [each for each in lines if each.startswith("| `coldplate_gpu_power_watts` ")]
    told = ("gauge", "watts", "`gpu`, `uuid`", "Board power", "NVML field 185", "fast", "`DCGM_FI_DEV_POWER_USAGE`")
    assert [piece for piece in told if piece not in line] == []
    # A factor is in words and says which way it goes.
    assert "`DCGM_FI_DEV_GPU_UTIL` (dcgm): percent; divide it by 100 |" in text.replace("<br>", " |")
    assert "`DCGM_FI_DEV_FB_USED` (dcgm): MiB; multiply it by 1,048,576" in text
    assert "e-0" not in text


def test_every_name_of_another_exporter_is_there_once() -> None:
    lines = migration_document.render().splitlines()
    for profile in PROFILES.values():
        for name in {each.name for each in profile.names} | {each.name for each in profile.not_served}:
            assert sum(line.startswith(f"| `{name}` |") for line in lines) == 1, name
