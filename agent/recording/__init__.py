"""Recordings: snapshots of a node in a file (docs/recordings.md has the format byte by byte).

`recording_file.RecordingFile` writes one, `recording_reader.Recording` reads one, `recording_reader.by_time` merges
those of many nodes, and `redaction.Redaction` replaces what identifies people and machines.
"""
