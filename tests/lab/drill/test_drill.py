"""docs/dev/reliability.md has each fault of the drill."""

from tests.lab.drill import reliability
from tests.lab.drill.faults import AT_START, PLAIN


def test_the_documents_table_has_every_fault() -> None:
    text = reliability.DOCUMENT.read_text()
    for fault in (*PLAIN, AT_START):
        assert f"| {fault.title} | {fault.expected} |" in text, f"run `make drill`: {fault.title} is new, or another"
