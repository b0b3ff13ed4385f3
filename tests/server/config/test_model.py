"""The command line goes before the environment, that before the file, and no word is passed over."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataspace.actors.supervision import Restart
from dataspace.errors import UsageError
from index.values.values import Map
from server.cli.arguments import options_of
from server.cli.main import main
from server.cli.parser import parser
from server.cli.table import BY_NAME
from server.config.declaring import PREFIX
from server.config.file import TABLES, Loaded, load
from server.config.hosted import HostedActor, HostedFlow, HostedFunction
from server.config.kinds import flag
from server.config.model import Config, Limits, ServerTls, Traces
from server.config.report import check_lines
from server.config.rules import RuleText
from server.config.settings import SETTINGS, config_file

WHOLE = """
listen = ["tcp:127.0.0.1:0", "unix:/tmp/x.sock"]
socket_mode = "0660"
data = "data"
grace = "1m"
heartbeat = 2.5
stall = "2s"
hang = 90
stop = "3s"
trace = "turns.txt"

[limits]
streams = 7
staged_bytes = "1MiB"
facts = 1000

[log]
keep_for = "7d"
keep_bytes = "10GiB"

[tls]
certificate = "daemon.pem"
client_ca = "ca.pem"

[spaces.orders]
show = "durable"
keep_for = "1h"
limits = { facts = 5 }

[spaces.empty]

[[rules]]
file = "one.rules"
space = "orders"

[[rules]]
name = "two"
text = "b($x) <- a($x)."

[[actors]]
run = "tests.server.rogues:echo"

[[actors]]
run = "tests.server.rogues:several"
name = "words"
space = "orders"
arguments = ["one", 2, { k = [true] }, 2026-01-01T00:00:00Z]
isolate = true
hang = "5m"
required = true
needs = ["echo"]
restart = { intensity = 2, period = "1m", pause = 3 }

[[flows]]
run = "tests.server.hosting.flowing:crowds"
name = "crowds"
space = "orders"
arguments = ["guests"]

[[functions]]
run = "math:dist"
takes = ["seq", "seq"]
gives = "float"

[[functions]]
run = "math:hypot"
name = "geo.far"
takes = ["number", "number|null"]
gives = "float"
cost = 30
longest = "20ms"

[[tokens]]
name = "admin"
secret = "a secret that is long enough"

[[tokens]]
name = "sensor"
secret_file = "secret"
assert = ["reading(_, _)"]
quota = { facts = 10, facts_bytes = "1MiB" }
spaces = ["main"]
until = 2030-01-01T00:00:00Z
"""


PARSER = parser()
"""Made once, which takes longer than to load a file."""


def loaded(*words: str) -> Loaded:
    args = PARSER.parse_args(["serve", *words])
    return load(args, config_file(args))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a configuration; the environment says nothing."""
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    (tmp_path / "one.rules").write_text("c($x) <- b($x).")
    (tmp_path / "secret").write_text("another secret that is long\n")

    def write(text: str) -> Path:
        file = tmp_path / "dataspace.toml"
        file.write_text(text)
        return file

    return write


TOKEN = '[[tokens]]\nname = "admin"\nsecret = "a secret that is long enough"\n'


@pytest.mark.parametrize(
    ("text", "most", "source"),
    [
        ("", 1_000_000, "default"),
        (TOKEN, 65_536, "default with [[tokens]]"),
        (f"quota.actions_per_publication = 1_000_000\n{TOKEN}", 1_000_000, "dataspace.toml"),
        (f"{TOKEN}quota = {{ actions_per_publication = 7 }}\n", 65_536, "default with [[tokens]]"),
    ],
)
def test_tokens_share_a_daemon_so_a_publication_is_smaller(
    written: Callable[[str], Path], text: str, most: int, source: str
) -> None:
    read = loaded("--config", str(written(text)))
    assert read.config.quotas.actions_per_publication == most
    assert read.given["quota.actions_per_publication"].source.endswith(source)
    own = read.config.quotas_of_tokens()
    assert [each.actions_per_publication for each in own.values()] == [7] * ("= 7" in text)


def test_a_space_shows_what_main_does_unless_it_says_otherwise(written: Callable[[str], Path]) -> None:
    text = 'show = "durable"\n[spaces.one]\n[spaces.two]\nshow = "committed"\n'
    config = loaded("--config", str(written(text))).config
    assert [each.show for each in config.all_spaces()] == ["durable", "durable", "committed"]
    with pytest.raises(UsageError, match="durable or committed is needed"):
        loaded("--config", str(written('show = "at once"')))


def test_all_that_a_file_can_say(written: Callable[[str], Path], tmp_path: Path) -> None:
    config = loaded("--config", str(written(WHOLE))).config
    assert config.listen == ("tcp:127.0.0.1:0", "unix:/tmp/x.sock")
    assert (config.socket_mode, config.data, config.trace) == (
        0o660,
        tmp_path / "data",
        tmp_path / "turns.txt",
    )
    assert config.limits == Limits(heartbeat_seconds=2.5, grace_seconds=60.0, streams=7, staged_bytes=1 << 20)
    assert config.space_limits.facts == 1000 and (
        config.stall_seconds,
        config.hang_seconds,
        config.stop_seconds,
    ) == (2, 90, 3)
    assert (config.retention.age, config.retention.size) == (7 * 86_400.0, 10 << 30)
    assert config.tls == ServerTls(str(tmp_path / "daemon.pem"), None, str(tmp_path / "ca.pem"))
    orders, empty = config.spaces
    assert (orders.name, orders.data) == ("orders", tmp_path / "data" / "spaces" / "orders")
    assert (orders.limits.facts, orders.retention.age, orders.retention.size) == (5, 3600.0, 10 << 30)
    assert (empty.limits, empty.retention) == (config.space_limits, config.retention)
    assert (config.show, orders.show, empty.show) == (None, "durable", None)
    assert orders.rules == (tmp_path / "one.rules",)
    assert config.rules == (RuleText("two", "b($x) <- a($x)."),)
    assert config.actors[0] == HostedActor("tests.server.rogues:echo")
    words = config.actors[1]
    assert words.arguments == ("one", 2, Map({"k": (True,)}), datetime(2026, 1, 1, tzinfo=UTC))
    assert (words.title, words.space, words.needs) == ("words", "orders", ("echo",))
    assert words.isolate and words.hang == 300.0 and words.required and words.restart == Restart(2, 60.0, 3.0)
    assert config.flows == (
        HostedFlow("tests.server.hosting.flowing:crowds", "crowds", "orders", ("guests",)),
    )
    dist, far = config.functions
    assert dist == HostedFunction("math:dist", ("seq", "seq"), "float") and dist.title == "math.dist"
    assert far == HostedFunction("math:hypot", ("number", "number|null"), "float", "geo.far", 30, 0.02)
    admin, sensor = config.keys
    assert admin.rights.assert_ is True and sensor.secret == "another secret that is long"
    assert (sensor.rights.assert_, sensor.rights.observe) == (("reading(_, _)",), False)
    assert sensor.rights.spaces == ("main",)
    assert config.quotas_of_tokens() == {"sensor": replace(config.quotas, facts=10, facts_bytes=1 << 20)}


def test_without_a_word_the_defaults_hold(written: Callable[[str], Path]) -> None:
    assert loaded().config == Config()
    assert loaded("--config", str(written(""))).config == Config()


def test_the_command_line_before_the_environment_before_the_file(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = str(written('grace = "1s"\nheartbeat = "2s"\nlisten = "tcp:127.0.0.1:1"\n'))
    monkeypatch.setenv(f"{PREFIX}GRACE", "10s")
    monkeypatch.setenv(f"{PREFIX}HEARTBEAT", "20s")
    monkeypatch.setenv(f"{PREFIX}LIMITS_STREAMS", "5")
    monkeypatch.setenv(f"{PREFIX}CONFIG", file)
    known = loaded("--grace", "100s")
    given = {name: (each.value, each.source) for name, each in known.given.items()}
    assert given["grace"] == (100.0, "--grace")
    assert given["heartbeat"] == (20.0, "$DATASPACE_SERVE_HEARTBEAT")
    assert given["limits.streams"] == (5, "$DATASPACE_SERVE_LIMITS_STREAMS")
    assert given["listen"] == (("tcp:127.0.0.1:1",), file)
    assert given["socket_mode"] == (0o600, "default")
    assert known.config.limits.grace_seconds == 100.0


def test_what_is_checked_can_be_read_again_and_tells_no_secret(written: Callable[[str], Path]) -> None:
    first = loaded("--config", str(written(WHOLE)))
    lines = "\n".join(check_lines(first))
    assert "a secret" not in lines and "another secret" not in lines
    assert "grace = 60.0                                       # " in lines
    again = tomllib.loads(lines)
    assert again["limits"]["streams"] == 7
    assert [each["name"] for each in again["tokens"]] == ["admin", "sensor"]
    assert again["tokens"][1]["assert"] == ["reading(_, _)"]
    assert [each["name"] for each in again["actors"]] == ["tests.server.rogues:echo", "words"]
    assert again["flows"] == [
        {
            "run": "tests.server.hosting.flowing:crowds",
            "name": "crowds",
            "space": "orders",
            "arguments": ["guests"],
        }
    ]
    assert set(again["spaces"]) == {"orders", "empty"}
    assert again["spaces"]["orders"]["limits"] == {"facts": 5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grase = 1", "grase: no such setting (did you mean grace?), known are listen,"),
        ("[limits]\nstream = 1", "limits.stream: no such setting (did you mean streams?)"),
        ("[limits]\nstreams = 'many'", "limits.streams: a number from 0 is needed, not 'many'"),
        ("limits = 3", "limits: a table is needed, not 3"),
        ("grace = 'long'", "grace: 'long' is no duration"),
        ("listen = 'nowhere'", "listen: 'nowhere' is no address"),
        ("socket_mode = '999'", "socket_mode: permissions such as '0660' are needed"),
        ("verbose = 1", "verbose: true or false is needed, not 1"),
        ("hang = 0", "hang: 0.05 to 10000000000 seconds is needed, not 0.0"),
        ("grace = \nx", "Invalid value (at line 1"),
        ("[spaces.Orders]", "spaces.Orders: a space is named by small letters"),
        ("[spaces.main]", "space 'main' always exists"),
        ("[spaces.a]\nfacts = 1", "spaces.a.facts: no such setting (did you mean limits.facts?)"),
        ("[[actors]]\nname = 'x'", "actors[0].run: missing"),
        ("[[actors]]\nrun = 'a:b'\nspace = 'there'", "actors[0].space: no such space, known are main"),
        (
            "[[actors]]\nrun = 'a:b'\nisolated = true",
            "actors[0].isolated: no such setting (did you mean isolate?)",
        ),
        ("[[actors]]\nrun = 'a:b'\nrestart = { pausing = 1 }", "actors[0].restart.pausing: no such setting"),
        ("[[actors]]\nrun = 'a:b'\n[[actors]]\nrun = 'a:b'", "two actors in space 'main' are named 'a:b'"),
        ("[[flows]]\nname = 'x'", "flows[0].run: missing"),
        ("[[flows]]\nrun = 'a:b'\nisolate = true", "flows[0].isolate: no such setting"),
        ("[[flows]]\nrun = 'a:b'\n[[flows]]\nrun = 'a:b'", "two flows in space 'main' are named 'a:b'"),
        ("[[rules]]\nname = 'r'", "either a file or a name and a text is needed"),
        ("[[rules]]\nfil = 'x'", "rules[0].fil: no such setting (did you mean file?)"),
        ("streams = 1", "streams: no such setting (did you mean limits.streams?)"),
        ("grace = inf", "grace: a time such as '10s' or 0.5 is needed, not inf"),
        (f"grace = '{'9' * 400}h'", "grace: a time such as '10s' or 0.5 is needed, not inf"),
        (f"[log]\nkeep_bytes = '{'9' * 400}'", "log.keep_bytes: a size below 2^63 bytes is needed"),
        (f"[limits]\nstreams = '{'9' * 5000}'", "limits.streams: a number from 0 is needed, not '999"),
        (f"[limits]\nstreams = 1{'0' * 30}", "limits.streams: a number below 2^63 is needed"),
        ("data = '\\u0000'".replace("'", '"'), "data: a path without a null character is needed"),
        ("[[tokens]]\nname = 'a'\nsecret = 'short'", "the secret of token 'a' has 5 characters"),
        ("[[tokens]]\nname = 'a'", "either a secret or a secret_file is needed"),
        (
            "[[tokens]]\nname = 'a'\nsecret = 'long enough, really'\nassert = ['p($x)']",
            "'p($x)' captures, write _",
        ),
        ("[[tokens]]\nname = 'a'\nsecret = 'long enough, really'\nasert = true", "did you mean assert?"),
        ("actors = 'a:b'", "actors: tables [[actors]] are needed, not 'a:b'"),
        ("traces = 'http://localhost:4318'", "traces: a table is needed"),
        ("[traces]\nto = 'localhost:4318'", "traces.to: the URL of a collector is needed, such as http://"),
        ("[traces]\nto = 'http://a:secret@b'", "traces.to: the URL of a collector is needed"),
        ("[traces]\nto = 'http://b:999999'", "traces.to: the URL of a collector is needed"),
        ("[traces]\nratio = 1.1", "traces.ratio: a number from 0 to 1 is needed, such as 0.01, not 1.1"),
        ("[traces]\nratio = nan", "traces.ratio: a number from 0 to 1 is needed, such as 0.01, not nan"),
        ("[traces]\nratio = true", "traces.ratio: a number from 0 to 1 is needed"),
        ("[traces]\nendpoint = 'http://b'", "no such setting"),
        ("[tls]\nkey = 'k.pem'", "tls.key and tls.client_ca need tls.certificate"),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_place(
    text: str, said: str, written: Callable[[str], Path]
) -> None:
    file = written(text)
    with pytest.raises(UsageError) as raised:
        loaded("--config", str(file))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 'r'\ntext = 'b($x) <- a($y).'", "rule 'r': "),
        (
            "name = 'p'\ntext = 'p($x) <- a($x), not q($x).'\n"
            "[[rules]]\nname = 'q'\ntext = 'q($x) <- p($x).'",
            "rule 'q': p -> q -!-> p: break it with next",
        ),
        ("file = 'nowhere.rules'", "No such file or directory"),
        ("file = 'secret'", "secret: "),
        ("file = '/dev/zero'", "/dev/zero: more than 131072 characters"),
    ],
)
def test_rules_that_cannot_be_carried_out_are_found_by_the_check(
    text: str, said: str, written: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", str(written(f"[[rules]]\n{text}")), "--check"]) == 2
    assert said in capsys.readouterr().err


def names_of(document: dict[str, object], *at: str) -> Iterator[tuple[str, ...]]:
    """Where every name of a document stands."""
    for name, value in document.items():
        yield (*at, name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and name not in ("spaces", "arguments"):
                yield from names_of(each, *at, name)


@pytest.mark.slow
def test_every_name_that_is_misspelt_is_refused_with_the_right_one(written: Callable[[str], Path]) -> None:
    everything = "\n".join(check_lines(loaded("--config", str(written(WHOLE)))))
    places = set(names_of(tomllib.loads(everything)))
    assert len(places) > 70
    for *tables, name in places:
        if len(name) < 4:
            continue  # too short for what is near
        wrong = name[:-2] + name[-1]
        header = f"[[{'.'.join(tables)}]]" if tables and tables[0] in TABLES else f"[{'.'.join(tables)}]"
        if tables == ["actors", "restart"]:
            header = "[[actors]]\nrun = 'a:b'\n[actors.restart]"
        if tables == ["tokens", "quota"]:
            header = "[[tokens]]\nname = 'a'\nsecret = 'a secret that is long'\n[tokens.quota]"
        with pytest.raises(UsageError) as raised:
            loaded("--config", str(written(f"{header if tables else ''}\n{wrong} = 1")))
        assert wrong in str(raised.value) and f"(did you mean {name}?)" in str(raised.value)


def test_a_variable_that_is_none_is_named(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{PREFIX}GRASE", "1s")
    with pytest.raises(
        UsageError, match=r"\$DATASPACE_SERVE_GRASE: no such variable .did you mean \S+_GRACE"
    ):
        loaded()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="cannot read the configuration nowhere"):
        loaded("--config", "nowhere.toml")


def test_the_command_checks_and_says_what_is_wrong(
    written: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", str(written(WHOLE)), "--grace", "3s", "--check"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^grace = 3.0 +# --grace$", told, re.MULTILINE)
    assert main(["serve", "--config", str(written("grase = 1")), "--check"]) == 2
    assert "did you mean grace?" in capsys.readouterr().err
    assert main(["serve", "--host-space", "Main", "--check"]) == 2
    assert "--host-space: a space is named by small letters" in capsys.readouterr().err


def test_every_setting_of_bytes_takes_a_size_and_every_setting_of_seconds_a_time() -> None:
    for each in SETTINGS:
        if "bytes" in each.name or each.name == "limits.memory":
            assert each.read("1GiB") == 1 << 30, each.name
        if each.name.endswith("_seconds") or (
            isinstance(each.default, float) and each.name != "traces.ratio"
        ):
            assert each.read("2m") == 120.0, each.name


def test_an_option_of_the_command_is_one_of_a_setting_or_of_its_own() -> None:
    taken = {each.option for each in SETTINGS if each.option}
    row = BY_NAME["serve"]
    own = {"config", "check", "ready_fd", "host_space", "rules", "actor", "flow"}
    assert {name.strip("-").replace("-", "_") for name in options_of(row.arguments)} == taken | own
    defaults = vars(PARSER.parse_args(["serve"]))
    for each in SETTINGS:
        if each.option:
            assert (defaults[each.option] is False) == (each.read is flag), each.name


def test_the_collector_of_traces_is_a_url_with_or_without_a_path() -> None:
    assert loaded().config.traces == Traces()
    for given, meant in (
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector.example/", "https://collector.example/v1/traces"),
        ("https://collector.example/api/otlp", "https://collector.example/api/otlp"),
    ):
        assert loaded("--traces", given, "--traces-ratio", "1").config.traces == Traces(meant, 1.0)
