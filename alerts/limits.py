"""Limits on what the evaluation of rules may use of a node, and when its rounds come, all in one place.

They are not configurable: the numbers follow from what an agent beside a training job may cost, and a rule that exceeds
one of them does not belong on a node. Prometheus has the same limits on queries (`--query.timeout`,
`--query.max-samples`), sized for a server with nothing else to do; the error texts are its own.

A round comes with each new snapshot, and without one where none comes for a while. A backtest uses the same times in
the time of a recording, and so evaluates at the same moments.
"""

MAX_RULES = 500
"""Rules of a site on a node, beside the shipped ones: thousands belong on a Prometheus server."""
MAX_RULE_TOKENS = 40_000
"""Tokens of these rules together: words, numbers and signs of queries. Each takes 0.7 to 1.5 KiB compiled."""
CHARACTERS_OF_TOKEN = 100
"""Characters of a rule's texts that count as one token."""

DEADLINE_SECONDS = 1.0
"""Seconds that one rule may take: its query, the templates of its alerts, and their queries.

The rules of the pack take 30 microseconds each, and 5 ms all together; ten thousand elements with a window each take
0.1 s. So a second leaves room for a rule a hundred times as expensive on a machine ten times as slow, and is short
enough that a rule which never ends costs the others one round, and a stop does not wait longer for it.
"""
GROUP_SECONDS = 5.0
"""Seconds after which a group's evaluation starts no other rule: those that are left fail, and keep their state.

Rules that meet the deadline rest, so that those behind them are evaluated the next times.
"""
ROUND_SECONDS = 1.0
"""Seconds after which a round starts no other group of a site: those that are left come first in the next one."""
REST = 9
"""A rule that met the deadline pauses for this many times as long as it took: it gets at most a tenth of the thread."""
LONGEST_REST_SECONDS = 30.0
"""Longest pause in seconds: a rule must not pause for long only because the machine was suspended meanwhile."""

MAX_SAMPLES = 400_000
"""Samples that an evaluation may hold at once, beside the windows that it reads.

A sample counts as 64 bytes, so all are 25 MB: it takes 16 of them in a window that is being read, and up to 64 while a
function sorts it. Anything else counts for as many samples as it takes (see below).
"""
SAMPLES_PER_ELEMENT = 4
"""Samples that an element of an instant vector counts for: itself, and what the operators around it make of it."""
SAMPLES_PER_LABEL_SET = 6
"""Samples that a label set made by an evaluation counts for, beside its text."""
CHARACTERS_PER_SAMPLE = 64
"""Characters of labels and annotations that count as one sample."""
SAMPLES_PER_ALERT = 48
"""Samples that an active or remembered alert counts for: its record, its series, and what is known of its notices."""

MOST_REMEMBERED = 131_072
"""Samples of label sets that all queries together may remember between evaluations: 8 MiB."""
MOST_KEPT = 262_144
"""Samples that the alerts and recorded series of all rules together may count for: 16 MiB, or some 4,000 alerts.

One rule may have half of them, so that a rule that floods leaves some for the others.
"""
ALWAYS_KEPT = 16 * SAMPLES_PER_ALERT
"""Samples that a rule may always keep, whatever the others keep."""

LONGEST_VALUE = 8192
"""Most characters of a label's value made by a query or template."""
LONGEST_LABELS = 32_768
"""Most characters of all values of a label set made by a query."""
LONGEST_TEXT = 65_536
"""Most characters of a template's result, including intermediate ones."""
LONGEST_QUERY = 4096
"""Most characters of a query that a template builds."""

UNITS_PER_CHECK = 2048
"""Units of work between two reads of the timer; a unit is the work for an element or sample, at most some 10 us."""


PROMPT = 0.9
"""Share of the interval after which a new snapshot begins a round."""
PATIENT = 1.25
"""Share of the interval after which a round begins without one, where snapshots come at least as often."""


def prompt_time(began: float, interval: float) -> float:
    """Return the earliest time for the round after one that began then; all in monotonic seconds."""
    return began + PROMPT * interval


def patient_time(began: float, interval: float, period: float) -> float:
    """Return the time at which that round begins without a new snapshot; `period` is the time between two of them."""
    return began + (PATIENT if period <= interval else 1.0) * interval
