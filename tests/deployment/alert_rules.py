"""The rules by which a server records the firing alerts of agents and servers, and those that nothing inhibits.

Prometheus knows no inhibition: what Alertmanager does with `alerts/inhibition.yml` is written here as queries.
`make generate` puts them into the rules for the boards, once for a server and once for the store of a fleet.
"""

from alerts import inhibition, packs, rulefile
from alerts.promql.labels import Matcher
from alerts.rulefile import AlertingRule

REPORTED, FIRING, ACTIVE = "cluster:alert:reported", "cluster:alert:firing", "cluster:alert:active"
BEGIN, END = "  # alerts: made by `make generate` from alerts/inhibition.yml\n", "  # alerts: end\n"
IDENTITY = "alertname, rack, instance, gpu, device, port, job_id, equipment, unit, part, feed"
"""The labels by which an alert of a server is that of an agent. The severity is none: it may rise with time."""
OF_RACK = "Rack.+"
"""Names of alerts that every agent of a rack reports alike."""

RULES = """\
  # What agents report, with the summary of each alert. All agents of a rack report its alerts alike: one counts.
  - record: {reported}
    expr: |
      max without (job) (coldplate_alert_text_info{{alertname!~"{of_rack}"}})
      or
      label_replace(
        topk without (instance, summary) (1, max without (job) (coldplate_alert_text_info{{alertname=~"{of_rack}"}})),
        "instance", "", "", ""
      )
  # And what servers find by these rules alone: alerts of other teams are not counted. Prometheus keeps no
  # annotations as labels: such an alert has its name as its summary.
  - record: {firing}
    expr: |
      {reported}
      or
      (
        label_replace(
          max without (job, alertstate) (ALERTS{{alertstate="firing", alertname=~"{names}"}}),
          "summary", "$1", "alertname", "(.+)"
        )
        unless on ({identity}) {reported}
      )
  # Without those that an agent, or an Alertmanager with the same rules, holds back as effects of others.
  - record: {active}
    expr: |
      {firing}{{inhibited_by=""}}
      unless
      (
        {effects}
      )
"""


def alert_names(files: list[rulefile.RuleFile]) -> list[str]:
    """Return the names of the alerts of these rule files, in order."""
    rules = (rule for file in files for group in file.groups for rule in group.rules)
    return sorted({rule.name for rule in rules if isinstance(rule, AlertingRule)})


def recording_rules(fleet_files: list[rulefile.RuleFile]) -> str:
    """Return the rules as a part of a rule file; `fleet_files` are the rules of servers beside the pack."""
    names = alert_names([*(rulefile.load(path) for path in packs.shipped_files()), *fleet_files])
    effects = (
        f"{FIRING}{{{_text(rule.target)}}}\n        and on ({', '.join(rule.equal)}) {FIRING}{{{_text(rule.source)}}}"
        for rule in inhibition.shipped()
    )
    return RULES.format(
        reported=REPORTED,
        firing=FIRING,
        active=ACTIVE,
        of_rack=OF_RACK,
        identity=IDENTITY,
        names="|".join(names),
        effects="\n        or\n        ".join(effects),
    )


def _text(matchers: tuple[Matcher, ...]) -> str:
    return ", ".join(f'{matcher.name}{matcher.operator}"{matcher.value}"' for matcher in matchers)
