"""An address is understood as daemons print it and as clients are told it, and nothing else is."""

from __future__ import annotations

import pytest

from dataspace.transport.addresses import Address, parse_listen, parse_url
from index.errors import UsageError


@pytest.mark.parametrize(
    "address", [Address("127.0.0.1", 7377), Address("::1", 0), Address("host.example", 65_535)]
)
def test_in_either_form_on_either_side(address: Address) -> None:
    for parse in parse_listen, parse_url:
        assert parse(address.listen) == parse(address.url) == address


def test_a_client_may_leave_the_port_out() -> None:
    assert parse_url("tcp://somewhere") == Address("somewhere", 7377)


@pytest.mark.parametrize(
    "text", ["", "7377", "somewhere:7377", "ftp://a:1", "tcp://a:65536", "tcp:a:b", "tcp://::1:7377"]
)
def test_what_is_no_address_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no address, write tcp://HOST:PORT"):
        parse_url(text)
    with pytest.raises(UsageError, match=r"is no address, write tcp:HOST:PORT"):
        parse_listen(text)
