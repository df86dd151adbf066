"""Limits on the size of a template. The budget of its evaluation limits one rendering (see `alerts.limits`)."""

LONGEST_TEMPLATE = 65_536
"""Characters."""

DEEPEST_NESTING = 100
"""Branches and parentheses within each other; an `else if` is no level.

Rendering takes four of the 1,000 calls within each other that Python allows for a level, reading takes three; so half
of them are left to whoever calls."""

WIDEST_VERB = 1000
"""Characters that a verb of printf may be told to take."""
