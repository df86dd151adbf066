"""Limits on what the evaluation of rules may use of a node, all in one place.

They are not configurable: the numbers follow from what an agent beside a training job may cost at all, and a rule
that exceeds one of them does not belong on a node. Prometheus has the same limits on queries (`--query.timeout`,
`--query.max-samples`), sized for a server with nothing else to do; the error texts are its own.
"""

from __future__ import annotations

DEADLINE_SECONDS = 1.0
"""Seconds that one rule may take: its query, the templates of its alerts, and their queries.

The rules of the pack take 30 microseconds each, and 5 ms all together; ten thousand elements with a window each take
0.1 s. So a second leaves room for a rule a hundred times as dear on a machine ten times as slow, and is little enough
that a rule which never ends costs the others one round, and a stop waits no longer for it.
"""
ROUND_SECONDS = 1.0
"""Seconds after which a round begins no other rule, and what is left is due in the next one: the interval of rounds."""
QUICK_SECONDS = 0.1
"""Seconds up to which a group is evaluated before those that take longer, so that it need not wait for them."""
REST = 9
"""How many times as long as it took a rule rests that met the deadline: a tenth of the thread is all that it gets."""
LONGEST_REST_SECONDS = 30.0
"""Seconds: what a machine that stood still made of a rule's time is not held against it for long."""

MOST_SAMPLES = 400_000
"""Samples that an evaluation may hold at a time, beside the windows that it reads.

A sample stands for 64 bytes, so all are 25 MB: it is 16 of them in a window that is looked at, and up to 64 while a
function sorts it. What else is held counts as many samples as it takes (see below).
"""
ELEMENT = 4
"""Samples that an element of an instant vector counts: itself, and what the operators around it make of it."""
LABEL_SET = 6
"""Samples that a label set counts which an evaluation makes, beside its text."""
TEXT = 64
"""Characters of labels and annotations that count as a sample."""
ALERT = 48
"""Samples that an alert counts, or one that is remembered: its record, its series, and what is known of its notices."""

MOST_REMEMBERED = 131_072
"""Samples that all queries together may remember of label sets from one evaluation to the next: 8 MiB."""
MOST_KEPT = 262_144
"""Samples that the alerts and recorded series of all rules together may count: 16 MiB, or some 4,000 alerts.

One rule may have half of them, so that a rule which floods does not leave the others without.
"""
ALWAYS_KEPT = 16 * ALERT
"""Samples that a rule may keep whatever the others keep."""

LONGEST_VALUE = 8192
"""Characters of a label's value that a query or template makes."""
LONGEST_LABELS = 32_768
"""Characters of all values of a label set that a query makes."""
LONGEST_TEXT = 65_536
"""Characters of what a template makes, also in between."""
LONGEST_QUERY = 4096
"""Characters of a query that a template makes of what it finds."""

STRIDE = 2048
"""Units of work between two looks at the timer; a unit is what is done for an element or sample, some 10 us at most."""
