"""``python -m ndcheck``."""

import sys

from ndcheck.cli import main

sys.exit(main())
