"""A daemon that is sent SIGHUP takes tokens and certificates anew, and lets go of nobody else."""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

import dataspace
from dataspace import ProtocolError, Record, Refused
from dataspace.errors import UsageError
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.values.values import Map
from relay.log.retention import Retention
from server.config.hosted import HostedActor
from server.config.model import Config, Limits, ServerTls, SpaceConfig
from server.config.rights import Key, Rights
from server.config.rules import RuleText
from server.daemon.serve import serve
from tests.server.peers import Peer, turn
from tests.server.processes import DaemonProcess
from tests.server.sessions.test_transports import HERE, SERVER, TRUSTING

READ = "dataspace: SIGHUP, the configuration was reloaded"
OPEN = Key("operator", "the secret of the operator")
SENSOR = Key("sensor", "the secret of a sensor", Rights.read(Map({"assert": ("reading(_, _)",)})))


class Reread:
    """A daemon in this process, and the configuration that it finds when it looks again."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.fails = ""
        self.reads = 0

    def __call__(self) -> Config:
        self.reads += 1
        if self.fails:
            raise UsageError(self.fails)
        return self.config

    async def take(self, config: Config, capfd: pytest.CaptureFixture[str]) -> str:
        """What the daemon says once it has looked at another configuration."""
        self.config = config
        os.kill(os.getpid(), signal.SIGHUP)
        said = ""
        while not said:
            await trio.sleep(0.01)
            said = capfd.readouterr().err
        return said

    async def start(self, nursery: trio.Nursery) -> str:
        addresses: list[str] = await nursery.start(serve, self.config, self)
        scheme, _, rest = addresses[0].partition(":")
        return f"{scheme}://{rest}"


def config_of(
    data: Path, *keys: Key, listen: str = "tcp:127.0.0.1:0", tls: ServerTls | None = None
) -> Config:
    return Config(listen=(listen,), data=data, keys=keys, tls=tls)


def expelled() -> AbstractContextManager[object, bool]:
    """Where a client is told that its token is no good, whatever it is waiting for."""
    return pytest.raises(ProtocolError, match="the token was removed or its rights have changed")


async def test_a_token_that_is_taken_back_ends_its_sessions_and_no_others(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    reread = Reread(config_of(tmp_path, OPEN, SENSOR))
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url, token=OPEN.secret) as stays:
            with expelled():
                async with dataspace.connect(url, token=SENSOR.secret) as goes:
                    await goes.assert_(Record("reading", "d1", 1.0))
                    await stays.assert_(Record("present", "me"))
                    said = await reread.take(config_of(tmp_path, OPEN), capfd)
                    assert said == f"{READ}: 1 token, 1 session ended\n"
                    await trio.sleep_forever()
            assert await stays.matches("reading($device, _)") == []
            assert await stays.matches("present($who)") == [("me",)]
            with pytest.raises(ProtocolError, match="unknown to this daemon"):
                async with dataspace.connect(url, token=SENSOR.secret):
                    pass
            await reread.take(config_of(tmp_path, OPEN, SENSOR), capfd)
            async with dataspace.connect(url, token=SENSOR.secret) as again:
                await again.assert_(Record("reading", "d1", 2.0))
            assert await stays.matches("present($who)") == [("me",)]


@pytest.mark.parametrize(
    "now",
    [
        replace(SENSOR, secret="another secret of a sensor"),
        replace(SENSOR, rights=Rights.read(Map({"assert": ("reading(_)",)}))),
    ],
    ids=["secret", "rights"],
)
async def test_a_token_that_is_good_for_something_else_ends_its_sessions(
    now: Key, tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    reread = Reread(config_of(tmp_path, SENSOR))
    url = await reread.start(nursery)
    with trio.fail_after(20):
        with expelled():
            async with dataspace.connect(url, token=SENSOR.secret) as goes:
                assert "0 sessions ended" in await reread.take(config_of(tmp_path, SENSOR), capfd)
                await goes.assert_(Record("reading", "d1", 1.0))
                assert "1 session ended" in await reread.take(config_of(tmp_path, now), capfd)
                await trio.sleep_forever()
        async with dataspace.connect(url, token=now.secret) as comes:
            with pytest.raises(Refused):
                await comes.assert_(Record("other"))


async def test_a_session_that_waits_for_its_client_goes_with_its_token(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    reread = Reread(config_of(tmp_path, OPEN, SENSOR))
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url, token=OPEN.secret) as looks:
            async with Peer(url) as lost:
                wanted = Wanted(token=SENSOR.secret, grace=60.0)
                await lost.say(p.Hello(p.VERSION, "~sensor", "", wanted.packed()))
                await lost.say(turn(1, (ASSERT, 1, Record("reading", "d1", 1.0))))
                for _ in range(2):  # a welcome, and that the turn is taken
                    await lost.hear()
            while (await looks.status())["sessions_waiting"] != 1:
                await looks.sync()
            assert await looks.matches("reading($device, _)") == [("d1",)]
            assert "1 session ended" in await reread.take(config_of(tmp_path, OPEN), capfd)
            assert await looks.matches("reading($device, _)") == []


async def test_what_is_wrong_changes_nothing_and_what_waits_for_a_restart_is_named(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    before = config_of(tmp_path, SENSOR)
    reread = Reread(before)
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url, token=SENSOR.secret) as stays:
            reread.fails = "daemon.toml: tokns: no such setting"
            said = await reread.take(before, capfd)
            assert (
                said
                == "dataspace: SIGHUP, the configuration is not taken: daemon.toml: tokns: no such setting\n"
            )
            reread.fails = ""
            wrong = replace(before, limits=Limits(identities=1), socket_mode=0o666)
            said = await reread.take(wrong, capfd)
            assert said.endswith("these have changed and need a restart: socket_mode, limits.identities\n")
            taken = replace(before, keys=(), listen=(*before.listen, f"tcp:{urlsplit(url).netloc}"))
            said = await reread.take(taken, capfd)
            assert "SIGHUP, the configuration is not taken: cannot listen on tcp:127.0.0.1:" in said
            lost = replace(before, keys=(), actors=(HostedActor("nowhere:to_be_found"),))
            said = await reread.take(lost, capfd)
            assert "SIGHUP, the configuration is not taken: actor nowhere:to_be_found: No module" in said
            await stays.assert_(Record("reading", "d1", 1.0))


LOUD = "loud($x) <- said($x)."


def on_two_spaces(data: Path, rules: Path) -> Config:
    other = SpaceConfig("other", data / "spaces" / "other", rules=(RuleText("here", "here($x) <- p($x)."),))
    return replace(config_of(data), rules=(rules,), spaces=(other,))


async def test_rules_of_a_file_that_was_edited_are_taken(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "words.rules"
    file.write_text(LOUD)
    config = on_two_spaces(tmp_path / "data", file)
    reread = Reread(config)
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url) as space, dataspace.connect(url, space="other") as other:
            await space.assert_(Record("said", "a"))
            await other.assert_(Record("p", 1))
            assert await space.matches("loud($x)") == [("a",)]
            assert await reread.take(config, capfd) == f"{READ}: 0 tokens, 0 sessions ended\n"
            file.write_text("quiet($x) <- said($x).")
            said = await reread.take(config, capfd)
            assert said == f"{READ}: 0 tokens, 0 sessions ended; the rules of main have changed\n"
            assert (await space.matches("quiet($x)"), await space.matches("loud($x)")) == ([("a",)], [])
            file.write_text("quiet($x) <- sa")  # torn, or with an error
            said = await reread.take(config, capfd)
            assert f"; rules are not taken: rules of {file}: " in said
            assert await space.matches("quiet($x)") == [("a",)], "a bad file changes nothing"
            assert "(its old text stays)" in said
            without = replace(config, rules=(), spaces=(replace(config.spaces[0], rules=()),))
            said = await reread.take(without, capfd)
            assert "the rules of main have changed; the rules of other have changed\n" in said
            assert (await space.matches("quiet($x)"), await other.matches("here($x)")) == ([], [])
            said = await reread.take(replace(without, spaces=()), capfd)
            assert said.endswith("these have changed and need a restart: spaces\n")


async def test_one_broken_file_of_rules_keeps_no_other_from_being_taken(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("first", "second", "third", "fourth")
    files = [tmp_path / f"{name}.rules" for name in names]
    for name, file in zip(names, files, strict=True):
        file.write_text(f"{name}($x) <- said($x).")
    config = on_two_spaces(tmp_path / "data", files[0])
    config = replace(config, rules=tuple(files[:3]))
    reread = Reread(config)
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url) as space, dataspace.connect(url, space="other") as other:
            await space.assert_(Record("said", "a"))
            await other.assert_(Record("p", 1))
            files[0].write_text("one($x) <- said($x).")
            files[1].write_text("second($x) <- sa")
            files[2].unlink()
            files[3].write_text("fourth($x) <- said($x), not second($x). second($x) <- fourth($x).")
            there = replace(config.spaces[0], rules=(RuleText("there", "there($x) <- p($x)."),))
            said = await reread.take(replace(config, rules=tuple(files), spaces=(there,)), capfd)
            assert said.startswith(f"{READ}: 0 tokens, 0 sessions ended; the rules of main have changed; ")
            assert said.endswith("; the rules of other have changed\n"), "one space holds up no other"
            parts = said.split("; rules are not taken: ")[1:]
            assert [part.split(": ")[0] for part in parts] == [f"rules of {file}" for file in files[1:]]
            old = ["old text stays" in part for part in parts]
            assert old == [True, True, False] and "(no old text is held)" in parts[2]
            held = {name: await space.matches(f"{name}($x)") for name in ("first", "one", *names[1:])}
            assert [name for name, rows in held.items() if rows] == ["one", "second", "third"]
            assert await space.matches("rule-error($name, _, _, _)") == []
            assert await other.matches("there($x)") == [(1,)]
            files[1].write_text("two($x) <- said($x).")
            said = await reread.take(replace(config, rules=tuple(files[:2]), spaces=(there,)), capfd)
            assert "not taken" not in said
            assert [len(await space.matches(f"{name}($x)")) for name in ("two", "second", "third")] == [
                1,
                0,
                0,
            ]


@pytest.mark.slow
async def test_a_rule_file_that_is_bad_or_gone_does_not_keep_a_daemon_from_starting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = tmp_path / "good.rules", tmp_path / "bad.rules"
    good.write_text(LOUD)
    bad.write_text("soft($x) <- said($x).")
    config = replace(config_of(tmp_path / "data"), rules=(good, bad))

    async def derived() -> tuple[object, ...]:
        """What holds of one fact under a daemon of its own."""
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                url = await Reread(config).start(nursery)
                async with dataspace.connect(url) as space:
                    await space.assert_(Record("said", "a"))
                    found = [await space.matches(f"{each}($x)") for each in ("loud", "soft")]
                    errors = await space.matches("rule-error($name, _, _, _)")
                nursery.cancel_scope.cancel()
        return (*found, errors)

    assert await derived() == ([("a",)], [("a",)], [])
    bad.unlink()
    assert await derived() == ([("a",)], [("a",)], []), "a file that cannot be read leaves what was held"
    assert f"rules of {bad}: [Errno 2]" in caplog.text
    bad.write_text("soft($x) <- sa")
    assert await derived() == ([("a",)], [], [("bad",)])
    assert "rule bad is not carried out" in caplog.text
    bad.write_bytes(b"\xff")
    assert (await derived())[0] == [("a",)]
    bad.write_text("% " + "x" * (1 << 18))
    assert (await derived())[0] == [("a",)]
    assert "more than 131072 characters" in caplog.text


async def test_rules_beyond_a_limit_do_not_keep_a_daemon_from_starting(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    few = replace(
        config_of(tmp_path / "data"), space_limits=SpaceLimits(facts=1), rules=(RuleText("a", LOUD),)
    )
    url = await Reread(replace(few, rules=(*few.rules, RuleText("b", LOUD)))).start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url) as space:
            assert await space.matches("rule($name, _)") == []
    assert "rules of space main stay as the log has them: limit: 2 facts" in caplog.text


async def test_a_renewed_certificate_is_shown_to_who_comes_next(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    listening = config_of(tmp_path, listen="tls:127.0.0.1:0", tls=SERVER)
    reread = Reread(listening)
    url = await reread.start(nursery)
    renewed = ServerTls(str(HERE / "client.pem"), str(HERE / "client.key"))
    with trio.fail_after(20):
        async with dataspace.connect(url, tls=TRUSTING) as stays:
            first = await trio.to_thread.run_sync(certificate, url)
            said = await reread.take(replace(listening, tls=ServerTls("no such file")), capfd)
            assert "is not taken" in said and "no such file" in said
            assert await trio.to_thread.run_sync(certificate, url) == first
            await reread.take(replace(listening, tls=renewed), capfd)
            assert await trio.to_thread.run_sync(certificate, url) != first
            await stays.assert_(Record("present", "me"))


def certificate(url: str) -> bytes | None:
    """What a daemon shows to who comes now."""
    place = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((place.hostname, place.port)) as plain,
        context.wrap_socket(plain) as shown,
    ):
        return shown.getpeercert(binary_form=True)


@pytest.mark.slow
def test_the_command_reads_its_file_again(tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text('[[tokens]]\nname = "a"\nsecret = "a secret of somebody"\n')
    daemon = DaemonProcess(tmp_path / "data", "--config", str(file))
    daemon.start()
    try:

        async def main() -> None:
            with trio.fail_after(20):
                async with dataspace.connect(daemon.url, token="a secret of somebody") as space:
                    file.write_text(
                        f"{file.read_text()}\n[[tokens]]\nname = 'b'\nsecret = 'another secret of one'\n"
                    )
                    daemon.process.send_signal(signal.SIGHUP)
                    while True:
                        try:
                            async with dataspace.connect(daemon.url, token="another secret of one") as other:
                                await other.assert_(Record("present", "b"))
                                assert await space.matches("present($who)") == [("b",)]
                                return
                        except ProtocolError:
                            await trio.sleep(0.02)

        trio.run(main)
    finally:
        assert daemon.stop() == 0
    assert "SIGHUP, the configuration was reloaded: 2 tokens, 0 sessions ended" in daemon.errors


async def test_quotas_of_a_token_are_taken_and_its_sessions_go_on(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    reread = Reread(config_of(tmp_path, OPEN, replace(SENSOR, quota=(("facts", 1),))))
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with (
            dataspace.connect(url, token=SENSOR.secret) as sensor,
            dataspace.connect(url, token=OPEN.secret) as other,
        ):
            await sensor.assert_(Record("reading", 1, 1))
            with pytest.raises(
                dataspace.Refused, match=r"2 facts of token:sensor, the limit is quota\.facts=1"
            ):
                await sensor.assert_(Record("reading", 2, 1))
            for n in range(3):
                await other.assert_(Record("reading", 3, n))
            await reread.take(config_of(tmp_path, OPEN, replace(SENSOR, quota=(("facts", 2),))), capfd)
            await sensor.assert_(Record("reading", 2, 1))
            with pytest.raises(dataspace.Refused, match=r"quota\.facts=2"):
                await sensor.assert_(Record("reading", 3, 1))
            await reread.take(config_of(tmp_path, OPEN, SENSOR), capfd)
            await sensor.assert_(Record("reading", 3, 1))


async def test_what_is_shown_changes_with_the_reload_both_ways(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    before = replace(config_of(tmp_path), spaces=(SpaceConfig("side", tmp_path / "side"),))
    reread = Reread(before)
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url) as space, dataspace.connect(url, space="side") as side:
            async with space.observe("fact($n)", quiet=True) as seen:
                assert [*(await seen.next_epoch()).added] == []  # type: ignore[union-attr]  # a state

                async def shown() -> list[object]:
                    return [(await each.status())["show"] for each in (space, side)]

                assert await shown() == ["committed", "committed"]
                for number, (main, other) in enumerate((("durable", None), (None, "durable"))):
                    wanted = replace(
                        before, show=main, spaces=(SpaceConfig("side", tmp_path / "side", show=other),)
                    )
                    assert "; changed: " in await reread.take(wanted, capfd)
                    assert await shown() == [main or "committed", other or "committed"]
                    await space.assert_(Record("fact", number))
                    epoch = await seen.next_epoch()
                    assert epoch is not None and [*epoch.added] == [(number,)]


async def test_limits_quotas_and_retention_hold_from_the_reload_on(
    tmp_path: Path, nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    before = config_of(tmp_path)
    reread = Reread(before)
    url = await reread.start(nursery)
    with trio.fail_after(20):
        async with dataspace.connect(url) as space:
            for n in range(2):
                await space.assert_(Record("fact", n))
            less = replace(
                before,
                limits=Limits(connections=2),
                space_limits=SpaceLimits(facts=2, patterns=1, actions_per_turn=3, derive_work=7),
                retention=Retention(age=0.0),
                verbose=True,
            )
            said = await reread.take(less, capfd)
            assert "; changed: limits, space_limits, retention, verbose" in said
            assert said.endswith("these have changed and need a restart: limits.derive_work\n")
            with pytest.raises(Refused, match=r"limits\.facts=2"):
                await space.assert_(Record("fact", 3))
            with pytest.raises(Refused, match=r"limits\.actions_per_turn=3"):
                draft = space.draft()
                for _ in range(4):
                    draft.send(Record("said"))
                await space.commit(draft)
            async with space.observe("fact($)", quiet=True), dataspace.connect(url) as other:
                with pytest.raises(Refused, match=r"limits\.patterns=1"):
                    async with other.observe("other($)", quiet=True) as stream:
                        await anext(stream)
                with pytest.raises(ProtocolError, match=r"limits\.connections=2"):
                    async with dataspace.connect(url, reconnect=False):
                        pass
            back = await reread.take(before, capfd)
            assert "; changed: limits, space_limits, retention, verbose" in back
            await space.assert_(Record("fact", 3))
    logging.getLogger("dataspace").setLevel(logging.NOTSET)
