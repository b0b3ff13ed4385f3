"""``python -m server`` is the command ``dataspace``."""

import sys

from server.command import main

sys.exit(main())
