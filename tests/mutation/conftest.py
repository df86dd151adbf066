"""The operators are installed by `make mutate` alone, which runs these tests first; `make test` runs the others."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("mutmut") and find_spec("coverage") else ["test_mutants.py"]
