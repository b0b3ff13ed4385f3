"""Pages about a cluster have a server of PostgreSQL, as the tests have."""

from tests.conftest import all_servers as all_servers, servers as servers
