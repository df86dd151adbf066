"""Write the documents and texts that are made from tables of the code: `python -m tests.lab.generate`."""

from __future__ import annotations

from pathlib import Path

from tests.lab.generate import configuration_table, migration_document, scenario_document, xid_document, xid_texts

DOCS = Path(__file__).resolve().parents[3] / "docs"


def main() -> None:
    """Write them all."""
    (DOCS / "migrating.md").write_text(migration_document.render(), encoding="utf-8")
    (DOCS / "scenarios.md").write_text(scenario_document.render(), encoding="utf-8")
    (DOCS / "xids.md").write_text(xid_document.render(), encoding="utf-8")
    configuration = DOCS / "configuration.md"
    configuration.write_text(configuration_table.splice(configuration.read_text(encoding="utf-8")), encoding="utf-8")
    xid_texts.write()


if __name__ == "__main__":
    main()
