"""Rules over recorded snapshots: which alerts there would have been and when, and how two versions of rules differ.

`play` evaluates rules as the daemon does, in the time of the snapshots, and `span_differences` compares what two
versions of them give.
"""
