"""The address of a store names its schema, and shows no password."""

from __future__ import annotations

import pytest

from dataspace.errors import UsageError
from relay.store.address import SCHEMA, StoreAddress, is_store_address


@pytest.mark.parametrize(
    ("text", "given", "schema"),
    [
        ("postgresql://h/db", "postgresql://h/db", SCHEMA),
        ("postgres://u@h:1,i:2/db?schema=a%20b", "postgresql://u@h:1,i:2/db", "a b"),
        (
            "postgresql://%2Frun%2Fpg/db?sslmode=require&schema=s",
            "postgresql://%2Frun%2Fpg/db?sslmode=require",
            "s",
        ),
        ("postgresql:///?service=main", "postgresql:///?service=main", SCHEMA),
    ],
)
def test_all_but_the_schema_is_for_libpq(text: str, given: str, schema: str) -> None:
    address = StoreAddress.parse(text)
    assert (address.url, address.schema) == (given, schema)


def test_what_is_shown_is_the_same_address_without_its_passwords() -> None:
    address = StoreAddress.parse("postgresql://u:secret@h/db?password=hidden&sslpassword=too&schema=s")
    for shown in (str(address), repr(address), f"{address}"):
        assert shown == "postgresql://u:***@h/db?password=***&sslpassword=***&schema=s"
    again = StoreAddress.parse(str(StoreAddress.parse("postgresql://u@h/db?schema=a%20b")))
    assert (again.url, again.schema) == ("postgresql://u@h/db", "a b")


@pytest.mark.parametrize(
    "text", ["mysql://h/db", "data", "postgresql://h/db?schema=", f"postgresql://h/db?schema={'é' * 32}"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        StoreAddress.parse(text)


def test_a_directory_is_no_address() -> None:
    assert is_store_address("postgresql://h/db") and is_store_address("postgres://")
    assert not is_store_address("data") and not is_store_address("/var/lib/postgresql")
    assert not is_store_address("postgresql:/h")
