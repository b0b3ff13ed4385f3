"""The version of this package, where the wheel, the daemon and the clients read it."""

from typing import Final

__version__: Final = "0.1.0"
