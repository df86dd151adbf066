"""`make test-bare`: the project on machines that nobody prepared."""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.lab.bare.command import main  # noqa: E402 - the checkout must be on the path first

sys.exit(main(sys.argv[1:]))
