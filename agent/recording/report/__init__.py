"""The report of a run by its recordings: facts gathered in one pass and bounded memory, observations, and pages.

`run_reader.read_run` makes a `run_facts.RecordedRun`, `performance_observations.all_observations` returns what stands
out, and `report_card`, `report_document` and `html_report` show both (docs/recordings.md).
"""
