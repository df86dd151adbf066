"""What a person sees of nodes at a terminal: the view of a node, what is wrong, panes of text, keys and modes.

It reads no clock and touches no device: snapshots and times come in, lines of text go out.
"""
