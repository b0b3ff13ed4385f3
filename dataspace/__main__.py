"""``python -m dataspace`` is the command ``dataspace``."""

import sys

from server.cli.main import main

sys.exit(main())
