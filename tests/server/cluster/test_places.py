"""The address of a store: how it is read and shown, and what commands do with the log there."""

from __future__ import annotations

import json

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from relay.store.address import StoreAddress
from server.cli.main import main
from tests.server.processes import DaemonProcess, running


@pytest.mark.parametrize(
    ("written", "url", "schema", "shown"),
    [
        (
            "postgresql://a:1,b:2/db",
            "postgresql://a:1,b:2/db",
            "dataspace",
            "postgresql://a:1,b:2/db?schema=dataspace",
        ),
        (
            "postgres://me:secret@h/db?schema=x&sslmode=require",
            "postgresql://me:secret@h/db?sslmode=require",
            "x",
            "postgresql://me:***@h/db?sslmode=require&schema=x",
        ),
        (
            "postgresql:///db?host=/run/pg&password=secret",
            "postgresql:///db?host=%2Frun%2Fpg&password=secret",
            "dataspace",
            "postgresql:///db?host=/run/pg&password=***&schema=dataspace",
        ),
    ],
)
def test_an_address_is_libpq_s_but_for_the_schema(written: str, url: str, schema: str, shown: str) -> None:
    address = StoreAddress.parse(written)
    assert (address.url, address.schema, str(address), repr(address)) == (url, schema, shown, shown)


@pytest.mark.parametrize("schema", ["", "x" * 64, "a%00b"])
def test_a_schema_has_a_name_that_postgresql_takes(schema: str) -> None:
    with pytest.raises(UsageError, match="a schema has a name of 1 to 63 bytes"):
        StoreAddress.parse(f"postgresql://h/db?schema={schema}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "mysql://h/db"], "data is kept in a directory or in postgresql://…, not in mysql://…"),
        (["--data", "postgresql://h/db", "--followers", "2", "--readers", "tcp:127.0.0.1:0"], "followers is"),
    ],
)
def test_what_is_no_store_or_not_for_one_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--check", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_check_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--check", "--data", "postgresql://me:secret@h/db?password=secret"]) == 0
    said = capsys.readouterr().out
    assert "postgresql://me:***@h/db" in said and "secret" not in said
    assert 'show = "durable"' in said


@pytest.mark.slow
async def test_a_log_in_a_store_is_verified_and_exported(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(postgres_url, "--host-space", "plant")

    def asked(*words: str) -> tuple[int, str, str]:
        status = main([*words, "--data", postgres_url])
        return status, *capsys.readouterr()

    with running(daemon):
        for name in ("main", "plant"):
            async with dataspace.connect(daemon.url, space=name, owner="map") as space:
                await space.assert_(Record("here", name))
        status, said, _ = await trio.to_thread.run_sync(asked, "log", "verify")
        assert status == 0 and "every checksum holds" in said
        for name in ("main", "plant"):
            exported = await trio.to_thread.run_sync(asked, "log", "export", "here($x)", "--space", name)
            assert name in exported[1] and len(exported[1].splitlines()) == 1
        status, _, errors = await trio.to_thread.run_sync(asked, "log", "verify", "--space", "else")
        assert status == 2 and "there is no log of space 'else'" in errors and "main, plant" in errors


@pytest.mark.slow
async def test_status_says_who_leads(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    daemons = DaemonProcess(postgres_url), DaemonProcess(postgres_url)

    def asked(*words: str) -> tuple[int, str, str]:
        status = main(["cluster", "status", *words])
        return status, *capsys.readouterr()

    with running(*daemons):
        while True:  # until both have said where they listen
            status, said, _ = await trio.to_thread.run_sync(asked, "--data", postgres_url, "--json")
            found = json.loads(said)
            if {each["url"] for each in found["members"]} == {each.url for each in daemons}:
                break
        (space,) = found["spaces"]
        assert status == 0 and (space["space"], space["url"], space["term"]) == ("main", daemons[0].url, 1)
        _, said, _ = await trio.to_thread.run_sync(asked, "--data", postgres_url)
        assert said.count("daemon ") == 2 and "space main  led by" in said
    status, said, _ = await trio.to_thread.run_sync(asked, "--data", postgres_url)
    assert status == 1 and said.count(", left ") == 2 and "\nspace main  no leader since term " in said
    status, _, errors = await trio.to_thread.run_sync(asked)
    assert status == 2 and "the address of a store is needed" in errors
