"""What the evaluation of rules may take of a node, all in one place.

None of it is configuration: the numbers follow from what an agent beside a training job may cost at all, and a rule
that meets one of them is wrong for a node. Prometheus has the same bounds on queries (`--query.timeout`,
`--query.max-samples`), made for a server with nothing else to do; the texts of the errors are its own.
"""

from __future__ import annotations

LONGEST_VALUE = 8192
"""Characters of a label's value that a query or template makes."""
LONGEST_LABELS = 32_768
"""Characters of all values of a label set that a query makes."""
LONGEST_TEXT = 65_536
"""Characters of what a template makes, also in between."""
