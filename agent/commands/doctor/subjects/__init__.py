"""What doctor examines: a file for each subject, found by being there.

It has `RANK`, its place in the order, and `checks(node)`, the things to look at. A check reads files or asks a server;
it starts no program, opens no device, and need not care about time: one that hangs is reported, and left alone.
"""
