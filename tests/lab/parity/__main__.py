"""Compare rules and queries with the newest Prometheus: `make parity ARGS=[queries|scripts|rules|templates]`.

Everything that is generated comes from a seed, which is printed: the same seed asks the same again. The status is 0
where nothing differs, 1 where something does, and 2 where nothing could be compared.
"""

import argparse
import random
import sys
from collections.abc import Sequence

from tests.lab.parity import queries, rulefiles, scripts, templates
from tests.lab.parity.oracles import MissingError, Recent, find, tally

PARTS = {"queries": queries, "scripts": scripts, "rules": rulefiles, "templates": templates}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.parity", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    help_of_seed = "of what is generated; default: another one each time"
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help=help_of_seed)
    parser.add_argument("--queries", type=int, default=30_000, help="how many to generate (%(default)s)")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; one of {', '.join(PARTS)}")
    try:
        recent: Recent = find()
    except MissingError as missing:
        print(f"nothing can be compared: {missing}", file=sys.stderr)
        return 2
    print(f"Prometheus {recent.version}, seed {options.seed}", flush=True)
    alike = [tally(part, PARTS[part].judged(recent, options)) for part in options.parts or PARTS]
    return 0 if all(alike) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
