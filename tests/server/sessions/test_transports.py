"""A daemon is reached over TCP, TLS and Unix sockets alike, and only by those whom it trusts."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, Tls
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Unreachable, UsageError
from server.config.model import Config, Limits, ServerTls
from server.connections.listeners import CannotListen
from server.daemon.serve import serve

HERE = Path(__file__).parents[1] / "certificates"
CA = str(HERE / "ca.pem")
SERVER = ServerTls(str(HERE / "daemon.pem"), str(HERE / "daemon.key"))
TRUSTING = Tls(ca=CA)
KNOWN = Tls(CA, str(HERE / "client.pem"), str(HERE / "client.key"))


async def started(nursery: trio.Nursery, data: Path, listen: str, tls: ServerTls | None = None) -> str:
    """The URL of a daemon in this process."""
    addresses = await nursery.start(serve, Config(listen=(listen,), data=data, tls=tls))
    scheme, _, rest = addresses[0].partition(":")
    return f"{scheme}://{rest}"


async def exchange(url: str, tls: Tls | None = None) -> None:
    """Says something through one client and reads it through the other; large values fill every buffer."""
    big = "x" * 3_000_000
    async with dataspace.connect(url, tls=tls) as space:
        await space.assert_(Record("said", 1))
        await space.assert_(Record("big", big))
        assert await space.matches("big($what:str)") == [(big,)]
        epoch = await space.sync()

        def read() -> list[object]:
            with BulkClient(url, tls=tls) as link:
                return [row for each in link.changes(Record("said", Record("$", None, None, Record("_"))),
                                                    after=0, upto=epoch) for row in each.added]  # fmt: skip

        assert await trio.to_thread.run_sync(read) == [(1,)]


@pytest.mark.parametrize("listen", ["tcp:127.0.0.1:0", "tls:127.0.0.1:0", "unix:{0}/socket"])
async def test_all_clients_over_all_transports(listen: str, tmp_path: Path, nursery: trio.Nursery) -> None:
    url = await started(nursery, tmp_path / "data", listen.format(tmp_path), SERVER)
    with trio.fail_after(20):
        await exchange(url, TRUSTING)


async def test_many_observers_over_tls_hear_all_of_a_flood(tmp_path: Path, nursery: trio.Nursery) -> None:
    url = await started(nursery, tmp_path, "tls:127.0.0.1:0", SERVER)
    heard: list[int] = []

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        async with dataspace.connect(url, tls=TRUSTING) as space:
            async with space.observe("n($n:int, _)", policy="wait") as changes:
                task_status.started()
                total = 0
                async for change in changes:
                    total += 1
                    if change.captures == (299,):
                        heard.append(total)
                        return

    with trio.fail_after(30):
        async with trio.open_nursery() as listeners, dataspace.connect(url, tls=TRUSTING) as space:
            for _ in range(3):
                await listeners.start(lambda task_status: listen(task_status))
            for n in range(300):
                await space.submit(_message(space, n))
    assert heard == [300, 300, 300]


def _message(space: dataspace.RemoteSpace, n: int) -> dataspace.Draft:
    draft = space.draft()
    draft.send(Record("n", n, "y" * 20_000))
    return draft


async def test_a_certificate_that_nobody_vouches_for_does_not_convince(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    url = await started(nursery, tmp_path, "tls:127.0.0.1:0", SERVER)
    with pytest.raises(Unreachable, match="cannot verify the daemon's certificate"):
        async with dataspace.connect(url, tls=Tls()):
            pass
    with pytest.raises(Unreachable, match=r"cannot verify the daemon's certificate: .*example"):
        async with dataspace.connect(url, tls=Tls(CA, server_name="example.org")):
            pass

    def link() -> None:
        BulkClient(url, tls=Tls())

    with pytest.raises(Unreachable, match="cannot verify the daemon's certificate"):
        await trio.to_thread.run_sync(link)


async def test_a_daemon_that_wants_certificates_lets_nobody_in_without(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    wary = ServerTls(SERVER.certificate, SERVER.key, client_ca=CA)
    url = await started(nursery, tmp_path, "tls:127.0.0.1:0", wary)
    with trio.fail_after(20):
        await exchange(url, KNOWN)
        with pytest.raises((Unreachable, dataspace.Broken)):
            async with dataspace.connect(url, tls=TRUSTING):
                pass


async def test_who_speaks_plainly_where_tls_is_wanted_is_told_so_and_the_other_way_round(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    secret = await started(nursery, tmp_path / "one", "tls:127.0.0.1:0", SERVER)
    plain = await started(nursery, tmp_path / "two", "tcp:127.0.0.1:0")
    with trio.fail_after(20):
        with pytest.raises(Unreachable, match="the other side does not speak it"):
            async with dataspace.connect(plain.replace("tcp", "tls"), tls=TRUSTING):
                pass
        mistaken, said = secret.replace("tls", "tcp"), "the daemon speaks TLS: connect to tls:"
        with pytest.raises(dataspace.ProtocolError, match=said) as refused:
            async with dataspace.connect(mistaken):
                pass
        assert refused.value.code == "malformed", "trying again is of no use"
        with pytest.raises(dataspace.DataspaceError, match=said):
            await trio.to_thread.run_sync(BulkClient, mistaken)
        await exchange(plain)
        await exchange(secret, TRUSTING)


async def test_a_certificate_is_needed_to_listen(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a certificate is needed"):
        await serve(Config(listen=("tls:127.0.0.1:0",), data=tmp_path))
    missing = ServerTls(str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="no certificate or key can be read at"):
        await serve(Config(listen=("tls:127.0.0.1:0",), data=tmp_path, tls=missing))


async def test_a_socket_is_for_its_owner_and_goes_with_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with trio.open_nursery() as nursery:
        await started(nursery, tmp_path / "data", f"unix:{path}")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_a_socket_that_was_left_is_replaced_and_one_in_use_is_not(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    url = await started(nursery, tmp_path / "data", f"unix:{path}")
    with pytest.raises(CannotListen, match="another process listens there"):
        await serve(Config(listen=(f"unix:{path}",), data=tmp_path / "other"))
    async with dataspace.connect(url) as space:
        assert await space.matches("anything($x)") == []


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(CannotListen, match="a file that is no socket"):
        await serve(Config(listen=(f"unix:{path}",), data=tmp_path / "data"))
    assert path.read_text() == "precious"


async def test_who_shakes_no_hands_is_parted_from_in_time_and_counted_as_a_stranger(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    limits = Limits(hello_seconds=0.3, strangers=5)
    config = Config(listen=("tls:127.0.0.1:0",), data=tmp_path, tls=SERVER, limits=limits)
    addresses = await nursery.start(serve, config)
    host, port = "127.0.0.1", int(addresses[0].rpartition(":")[2])
    with trio.fail_after(20):
        silent = [await trio.open_tcp_stream(host, port) for _ in range(12)]
        for each in silent:
            try:
                while await each.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass
            await each.aclose()
        await exchange(f"tls://{host}:{port}", TRUSTING)
