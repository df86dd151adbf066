"""What is the user's to mend, wherever it is found."""

from __future__ import annotations


class UserError(Exception):
    """A mistake on the command line, in a file or in an address; the text names the place and the remedy.

    A command that raises it ends with this text in one line, and with status 2.
    """
