"""The checks of `coldplate doctor`; the command finds every module of this folder.

A module has `CHECKS`: for each subject its place in the order of the output, and the function that yields its checks of
a node. A check reads files or requests a page from a server. It starts no program and opens no device, and needs no
timeout of its own: the command reports a check that hangs and abandons it.
"""
