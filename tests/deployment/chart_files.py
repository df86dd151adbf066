"""Write what the chart copies from elsewhere in the checkout: `python -m tests.deployment.chart_files`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from agent import __version__
from tests.deployment import config_schema

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "packaging" / "helm" / "coldplate"
SOURCES = {
    "files/rules": ("alerts/rules/*.yml", "alerts/server/*.rules.yml"),
    "files/dashboards": ("dashboards/generated/*.json",),
}

BEGIN, END = "<!-- values: made by `make generate` -->\n", "<!-- values: end -->\n"
_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z][\w.]*):(?P<value> .*)?")


def contents(chart: Path = CHART) -> dict[str, str]:
    """Every generated file of the chart, by its path in it. `chart` has the parts of files that are written by hand."""
    made = {
        f"{folder}/{path.name}": path.read_text(encoding="utf-8")
        for folder, patterns in SOURCES.items()
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    }
    described = (chart / "Chart.yaml").read_text(encoding="utf-8")
    described = re.sub(r"(?m)^version: .*$", f"version: {__version__}", described)
    made["Chart.yaml"] = re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{__version__}"', described)
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    schema["$defs"]["config"] = config_schema.of_config()
    schema["$defs"]["rack"]["properties"] = {
        "nodes": schema["$defs"]["rack"]["properties"]["nodes"],
        **config_schema.of_rack()["properties"],
    }
    before, _, rest = (chart / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    rows = ["| value | default | |", "|---|---|---|", *table((chart / "values.yaml").read_text(encoding="utf-8"))]
    made["README.md"] = f"{before}{BEGIN}" + "\n".join(rows) + f"\n{END}{rest.partition(END)[2]}"
    made["values.schema.json"] = json.dumps(schema, indent=1) + "\n"
    return made


def table(values: str) -> Iterator[str]:
    """A row for each value: its path, its default and the comment above it. Examples are comments, and left out."""
    comment: list[str] = []
    path: list[str] = []
    for line in values.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            text = line.strip()
            if line.startswith("#  "):
                continue  # an example
            comment = [*comment, text.removeprefix("#").strip()] if text.startswith("# ") else []
            continue
        depth = len(found["indent"]) // 2
        path[depth:] = [found["key"]]
        if found["value"] or comment:
            default = f"`{found['value'].strip()}`" if found["value"] else ""
            words = " ".join(comment).replace("|", "\\|")
            yield f"| `{'.'.join(path)}` | {default} | {words} |"
        comment = []


def write() -> None:
    """Write them, and remove copies whose source is gone."""
    made = contents()
    for folder in SOURCES:
        (CHART / folder).mkdir(parents=True, exist_ok=True)
        for path in (CHART / folder).iterdir():
            if f"{folder}/{path.name}" not in made:
                path.unlink()
    for name, text in made.items():
        (CHART / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
