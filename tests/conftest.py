"""What all tests share: how hypothesis searches, and that an interrupt reaches what they start."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# No deadline: the machines are shared, and a test never judges wall time.
settings.register_profile("here", deadline=None)
# On CI the same examples every time, so that a red run is about the change that it tests.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell has what it starts in the background ignore interrupts, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
