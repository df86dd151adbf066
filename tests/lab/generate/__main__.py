"""Write what is made from the code's tables and its command line: `python -m tests.lab.generate`."""

from pathlib import Path

from agent.cli import make_parser
from exporters import metrics_document
from tests.lab.generate import (
    alert_tables,
    configuration_table,
    migration_document,
    runbook_html,
    scenario_document,
    xid_texts,
)
from tests.lab.generate.command_line import SCRIPTS, pages, script

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = ROOT / "packaging" / "man"
COMPLETION = ROOT / "packaging" / "completion"
PARTS = {
    "alerts.md": alert_tables.splice,
    "configuration.md": configuration_table.splice,
    "synthetic.md": scenario_document.splice,
}


def main() -> None:
    metrics = metrics_document.render() + migration_document.render()
    (DOCS / "metrics.md").write_text(metrics, encoding="utf-8")
    for name, splice in PARTS.items():
        document = DOCS / name
        document.write_text(splice(document.read_text(encoding="utf-8")), encoding="utf-8")
    xid_texts.write()
    runbook_html.write()
    manual = pages(make_parser())
    for stale in {path.name for path in PAGES.iterdir()} - manual.keys():
        (PAGES / stale).unlink()
    for name, text in manual.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    for shell, name in SCRIPTS.items():
        (COMPLETION / name).write_text(script(shell), encoding="utf-8")


if __name__ == "__main__":
    main()
