"""Recordings: snapshots of a node in a file, as they were (docs/dev/recording-format.md has the format).

`recording_file.RecordingFile` writes one, `recording_reader.Recording` reads one, `node_merge.by_time` reads those of
many nodes as one, and `redaction.Redaction` replaces what identifies people and machines.
"""
