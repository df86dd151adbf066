"""What else changed on the node around the moment at which an alert began: the first thing that its reader asks."""

ANNOTATION = "changes"
"""The annotation with the explanation. A rule that has one of this name keeps its own."""
