"""Rules over recorded snapshots: which alerts there would have been and when, and how two versions of rules differ.

`rule_play.RulePlay` evaluates rules as the daemon does, in the time of the snapshots; `alert_spans` has what comes of
it, and `span_differences` compares that of two versions.
"""
