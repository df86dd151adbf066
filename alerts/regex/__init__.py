"""Regular expressions that others write: in rule files, templates and configurations.

They are RE2's, as Go's package regexp and so Prometheus read them, and are matched in time that is linear in the text:
Python's `re` backtracks, and one pattern of six characters would stop every thread of the daemon for good. Whatever
comes from outside is compiled by `compile_regex`; `re` is for patterns that stand in the code.
"""

from __future__ import annotations

from alerts.regex.expansion import Expansion
from alerts.regex.pattern import Regex, compile_regex
from alerts.regex.regex_errors import RegexError, RegexLimitError, TextTooLongError

__all__ = ["Expansion", "Regex", "RegexError", "RegexLimitError", "TextTooLongError", "compile_regex"]
