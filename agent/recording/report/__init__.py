"""What recordings say about a run: figures gathered in one pass and bounded memory, what an expert would say of them,
and the pages that tell it. `gathering.gather` makes a `run_facts.Run` of recordings; `expert.remarks` says what stands
out; `card`, `document` and `html_page` show both (docs/recordings.md).
"""
