"""Runs all checks in their order: each says in one line what it saw."""

import importlib
import os
import sys
import time
import traceback

from inside.tools import CHECKS, CheckError, journal

MODULES = ("start", "doctor", "confined", "reload", "broker")


def main() -> int:
    for module in os.environ.get("MODULES", "").split() or MODULES:
        importlib.import_module(f"inside.{module}")
    failed = 0
    began = time.monotonic()
    for name, check in CHECKS:
        at = time.monotonic()
        try:
            saw = check()
            word = "ok  "
        except Exception as error:
            failed += 1
            word = "FAIL"
            saw = str(error) if isinstance(error, CheckError) else traceback.format_exc().replace("\n", " | ")
        print(f"{word} {name}: {saw} ({time.monotonic() - at:.1f} s)")
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed in {time.monotonic() - began:.0f} s")
    if failed:
        print("---- the agent's last words ----")
        print("\n".join(journal().splitlines()[-60:]))
    print("CHECKS-END", failed)
    return 1 if failed else 0


sys.exit(main())
