"""The checks of `coldplate doctor`; `check_runner.SUBJECTS` lists them in the order of the output.

A check reads files or requests a page from a server. It starts no program and opens no device, and needs no timeout of
its own: the command reports a check that hangs and abandons it.
"""
