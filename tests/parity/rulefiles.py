"""Generated rule files, read here and by promtool."""

from __future__ import annotations

import argparse

from tests.parity.oracles import Recent


def compare(recent: Recent, options: argparse.Namespace) -> bool:
    """Whether both accept the same of `options.files` files."""
    del recent, options
    print("rules: no files are generated yet")
    return True
