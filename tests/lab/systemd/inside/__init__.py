"""The checks that run inside a machine with a systemd of its own, by that machine's own Python."""
