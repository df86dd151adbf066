"""The report of a run by its recordings: facts gathered in one pass and bounded memory, observations, and pages.

`run_reader.read_run` makes a `run_facts.RecordedRun`, `performance_observations.all_observations` returns what stands
out, `report_tables` has the figures of each GPU, port and node, and `report_card`, `report_document`, `html_report` and
`comparison` show them (docs/recordings.md).
"""
