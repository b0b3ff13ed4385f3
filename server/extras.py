"""What a configuration needs beyond the plain installation: extras, and another system."""

from __future__ import annotations

from importlib.util import find_spec

from dataspace.errors import UsageError
from dataspace.transport.addresses import WEB_EXTRA, parse_listen
from dataspace.transport.reactor import is_available
from relay.store.address import StoreAddress
from server.config.model import Config


def check_extras(config: Config) -> None:
    """Raises ``UsageError`` for a configuration that needs another system, or an extra that is missing."""
    if config.loop == "reader" and not is_available():
        raise UsageError("loop = 'reader' needs epoll and eventfd, as Linux has them; 'auto' does without")
    if isinstance(config.data, StoreAddress) and find_spec("psycopg") is None:
        raise UsageError("data in PostgreSQL needs psycopg: pip install 'dataspace-server[postgres]'")
    if config.archive.place is not None and find_spec("zstandard") is None:
        raise UsageError("an archive needs zstandard: pip install 'dataspace-server[archive]'")
    if not any(parse_listen(each).web for each in config.listen):
        return
    missing = [name for name in WEB_EXTRA if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"an address for http needs {', '.join(missing)}: pip install 'dataspace-server[web]'"
        )
