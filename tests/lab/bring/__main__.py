"""Bring what make needs: `python3 -ES tests/lab/bring environment run|dev|bench`, `programs`, `recent`, `newest`,
`wheels MACHINE`, `rpm`, `engines [needed]` or `deployers`.

This file is read by Pythons that are too old as well, so that they can be told in words: no newer syntax in it.
"""

import os
import sys

if sys.version_info < (3, 10):  # noqa: UP036
    version = ".".join(str(each) for each in sys.version_info[:2])
    sys.exit("coldplate needs Python 3.10 or newer, and this is " + version + "; name one with make PYTHON=python3.12")

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
try:
    from tests.lab.bring.command import main
except ImportError as error:
    sys.exit(
        "coldplate: this Python lacks a part of its standard library (" + str(error) + "): "
        "install all of it (on Debian python3, not python3-minimal)"
    )
sys.exit(main(sys.argv[1:]))
