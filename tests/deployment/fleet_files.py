"""What packaging/fleet has from the catalogue and the pack: `make generate` writes it, by this module.

Which series leave a shard is a list of relabelling rules, once as a file for vmagent and once in each configuration of
Prometheus, which cannot include one. For nodes that cannot reach Alertmanager there is a rule for each of their alerts.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from agent.catalogue.groups import LEAN
from alerts import inhibition, packs, rulefile
from alerts.rulefile import AlertingRule
from alerts.server_files import COMPARING
from tests.deployment import alert_rules

ROOT = Path(__file__).resolve().parents[2]
FLEET = ROOT / "packaging" / "fleet"
KEEP = FLEET / "vmagent" / "keep.yml"
RELAY = FLEET / "rules" / "relay.rules.yml"
CLUSTERS = FLEET / "rules" / "clusters.rules.yml"
ALERTMANAGER = ROOT / "alerts" / "server" / "alertmanager.yml"

INHIBITION = "# Made from alerts/inhibition.yml by `make generate`.\n"
BEGIN, END = "  # keep: made by `make generate`\n", "  # keep: end\n"
KEEP_HEAD = """# What leaves the shards of a fleet: -remoteWrite.urlRelabelConfig of vmagent. Made by `make generate`.
#
# Kept are `up`, alerts, what servers tell of themselves, recorded series, and the metrics of metrics.profile lean. The
# `cluster:` series of one shard are parts of a sum that global.rules.yml makes of all; what is recorded of each GPU and
# port of a job serves its shard alone.
"""
OF_A_SHARD = (
    "gpu:job_(?:(?:clock|work)_hertz:mean1m|member:idle|suspect:order)|node:job_suspect:order"
    "|node_job:gpu_clock_hertz:median|port:job_bytes:(?:rate2m|low|lack)"
)
RELAY_HEAD = Path(__file__).with_name("relay.head.yml").read_text(encoding="utf-8")
RELAY_RULE = Path(__file__).with_name("relay.rule.yml").read_text(encoding="utf-8")
WHERE = "".join(
    f"{{{{ with $labels.{label} }}}}, {word}{{{{ . }}}}{{{{ end }}}}"
    for label, word in (("gpu", "GPU "), ("device", ""), ("job_id", "job "))
)


def relabelling() -> list[str]:
    """The rules of what is kept, one a line."""
    names = "|".join(sorted(each.removeprefix("coldplate_") for each in LEAN))
    servers = (
        "up|ALERTS|scrape_samples_scraped|scrape_duration_seconds|(?:prometheus|vmagent|vmalert|vm|alertmanager)_.+"
    )
    return [
        f"- {{source_labels: [__name__], action: drop, regex: 'cluster:.+|{OF_A_SHARD}'}}",
        f"- {{source_labels: [__name__], action: keep, regex: '{servers}|[a-z_]+:.+|coldplate_(?:{names})'}}",
    ]


def relays() -> Iterator[str]:
    """A rule for each alert that nodes evaluate alone, in the order of their names."""
    files = [rulefile.load(path) for path in packs.shipped_files() if path.stem not in COMPARING]
    rules = (rule for file in files for group in file.groups for rule in group.rules)
    commands = {rule.name: dict(rule.annotations)["command"] for rule in rules if isinstance(rule, AlertingRule)}
    for name in sorted(commands.keys() - {"AgentDown"}):
        command = "'" + commands[name].source.replace("'", "''") + "'"
        yield RELAY_RULE.replace("NAME", name).replace("WHERE", WHERE).replace("COMMAND", command)


def contents() -> dict[Path, str]:
    """Every file that is made, or has a part that is."""
    rules = relabelling()
    made = {KEEP: KEEP_HEAD + "\n".join(rules) + "\n", RELAY: RELAY_HEAD + "".join(relays())}
    lines = "".join(f"  {each}\n" for each in rules)
    part = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    for path in sorted((FLEET / "prometheus").glob("*.yml")):
        made[path] = part.sub(lambda _: BEGIN + lines + END, path.read_text(encoding="utf-8"))
    part = re.compile(f"{re.escape(alert_rules.BEGIN)}.*?{re.escape(alert_rules.END)}", re.DOTALL)
    others = [path for path in sorted((FLEET / "rules").glob("*.yml")) if path not in (RELAY, CLUSTERS)]
    rules_of_alerts = alert_rules.recording_rules([rulefile.load(path) for path in others])
    for path in (packs.FLEET_RULES, CLUSTERS):
        text = f"{alert_rules.BEGIN}{rules_of_alerts}{alert_rules.END}"
        made[path] = part.sub(lambda _, text=text: text, path.read_text(encoding="utf-8"))
    made[ALERTMANAGER] = _with_inhibition(ALERTMANAGER.read_text(encoding="utf-8"))
    return made


def _with_inhibition(text: str) -> str:
    """Return the example of an Alertmanager with the inhibition rules of the pack."""
    source = inhibition.FILE.read_text(encoding="utf-8")
    head, _, rest = text.partition(INHIBITION)
    return (
        head + INHIBITION + source[source.index("inhibit_rules:") :] + "\n" + rest[rest.index("receivers:\n- name:") :]
    )


if __name__ == "__main__":
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")
