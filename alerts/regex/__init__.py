"""Regular expressions from users: in rule files, templates and configurations.

They have RE2's syntax, as in Go's package regexp and so in Prometheus, and are matched in time linear in the text:
Python's `re` backtracks, and one pattern of six characters could block every thread of the daemon for ever. All
external expressions are compiled by `Regex`; `re` is for patterns in the code.
"""

from alerts.regex.linear import RegexError, RegexLimitError, TextTooLongError
from alerts.regex.pattern import Expansion, Regex

__all__ = ["Expansion", "Regex", "RegexError", "RegexLimitError", "TextTooLongError"]
