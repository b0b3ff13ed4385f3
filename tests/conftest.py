"""What all tests share: how hypothesis searches, and nothing else."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: the machines are shared, and a test never judges wall time.
settings.register_profile("here", deadline=None)
# On CI the same examples every time, so that a red run is about the change that it tests.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
