"""Limits on the size of a template. The budget of its evaluation limits one rendering (see `alerts.limits`)."""

LONGEST_TEMPLATE = 65_536
"""Characters of a template."""

DEEPEST_NESTING = 100
"""Levels of branches and parentheses; an `else if` is not a level.

For each level rendering takes four of the 1,000 nested calls that Python allows, and reading three; so half of them are
left to the caller."""

MOST_TURNS = 10_000
"""Turns of all the `range` of one rendering together, some 50 ms of work."""

WIDEST_VERB = 1000
"""Most characters of the width of a printf verb."""
