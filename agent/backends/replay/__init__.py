"""A recording as a node: what was recorded is shown again as if it were now.

No worker reads it and no sampler conditions it: values in a recording have been through both.
"""
