"""The report of a run by its recordings: facts gathered in one pass and bounded memory, observations, and pages.

`run_reader.read_run` makes a `run_facts.RecordedRun`, `observation` has the alerts that fired in it and what could not
be judged, `report_tables` has the figures of each GPU, port and node, and `report_card`, `report_document`,
`html_report` and `comparison` show them (docs/recordings.md). `agent/wiring/recorded_alerts.py` plays the rules.
"""
