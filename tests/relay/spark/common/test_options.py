"""Options mean what they say, and what means nothing is refused with what would have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dataspace.errors import UsageError
from dataspace.transport.credentials import Tls
from relay.spark.common import options
from relay.spark.common.options import read_options, sink_options, source_shape, stream_options
from relay.spark.common.parsing import Moment, seconds

P = {"pattern": "p($)"}


def test_a_stream_starts_with_a_snapshot_unless_told_otherwise() -> None:
    assert stream_options(P).starts == ("snapshot",)
    assert stream_options(P | {"startingEpoch": "LATEST"}).starts == ("latest",)
    assert stream_options(P | {"startingEpoch": "007"}).starts == (7,)


def test_a_batch_reads_all_changes_unless_told_otherwise() -> None:
    read = read_options(P)
    assert (read.firsts, read.lasts, read.as_of) == (("earliest",), ("latest",), None)


def test_names_are_told_apart_without_regard_to_case() -> None:
    assert stream_options(P | {"MAXEPOCHSPERTRIGGER": "5"}).max_epochs == 5


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingepochs", "startingEpoch"),
        ("startingOffset", "startingEpoch"),
        ("maxEpochPerTrigger", "maxEpochsPerTrigger"),
        ("failOnLoss", "failOnDataLoss"),
        ("patern", "pattern"),
        ("uri", "url"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"option {name} is unknown.*did you mean {nearest}\\?"):
        stream_options(P | {name: "1"})


def test_an_option_of_another_verb_is_told_whose_it_is() -> None:
    with pytest.raises(UsageError, match="asOfEpoch is one of dataspace read, unknown to readStream"):
        stream_options(P | {"asofepoch": "3"})
    with pytest.raises(
        UsageError, match=r"pattern is one of dataspace readStream, unknown to write \(known are .*template"
    ):
        sink_options({"label": "p", "pattern": "p($)"})


def test_sparks_own_options_pass() -> None:
    stream_options(P | {"checkpointLocation": "/x", "queryName": "q"})


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("startingEpoch", "soon", "snapshot, latest, earliest and epoch numbers"),
        ("startingEpoch", "-1", "epoch numbers"),
        ("startingEpoch", "9" * 30, "epoch numbers"),
        ("maxEpochsPerTrigger", "0", "whole numbers from 1 on"),
        ("failOnDataLoss", "perhaps", "true and false"),
        ("connectTimeout", "soon", "spans such as 30s"),
        ("arrowBatchRows", "1.5", "whole numbers"),
    ],
)
def test_a_value_that_means_nothing_is_answered_with_those_that_do(
    option: str, value: str, allowed: str
) -> None:
    with pytest.raises(UsageError, match=f"option {option} is .*allowed are .*{allowed}"):
        stream_options(P | {option: value})


def test_a_state_and_a_range_are_not_asked_for_together() -> None:
    assert read_options(P | {"asOfEpoch": "latest"}).as_of == ("latest",)
    with pytest.raises(UsageError, match="one kind"):
        read_options(P | {"asOfEpoch": "3", "endingEpoch": "4"})
    with pytest.raises(UsageError, match="there is asOfEpoch"):
        read_options(P | {"startingEpoch": "snapshot"})


NINE = Moment(1795338000000000, "2026-11-22T09:00:00Z")


@pytest.mark.parametrize(
    "text",
    ["2026-11-22T09:00:00Z", "2026-11-22 09:00:00", "2026-11-22T11:00+02:00", "1795338000000"],
)
def test_a_time_is_iso_in_utc_or_milliseconds(text: str) -> None:
    assert stream_options(P | {"startingTimestamp": text}).starts == (Moment(NINE.micros, text),)
    read = read_options(P | {"startingTimestamp": text, "endingTimestamp": text})
    assert (read.firsts, read.lasts) == ((Moment(NINE.micros, text),), (Moment(NINE.micros, text),))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("1795338000", "looks like seconds"), ("noon", "times such as"), ("-1", "times such")],
)
def test_a_time_that_means_nothing_is_answered_with_what_does(text: str, allowed: str) -> None:
    with pytest.raises(UsageError, match=f"option asOfTimestamp is .*{allowed}"):
        read_options(P | {"asOfTimestamp": text})


def test_a_state_has_the_names_of_delta_as_well() -> None:
    for name in ("asOfTimestamp", "timestampAsOf"):
        assert read_options(P | {name: NINE.said}).as_of == (NINE,)
    assert read_options(P | {"versionAsOf": "7"}).as_of == (7,)


def test_options_that_say_the_same_exclude_each_other() -> None:
    both = {"startingEpoch": "3", "startingTimestamp": NINE.said}
    with pytest.raises(UsageError, match="startingEpoch and startingTimestamp both say where to begin"):
        read_options(P | both)
    with pytest.raises(UsageError, match="startingEpoch and startingTimestamp both say where to begin"):
        stream_options(P | both)
    with pytest.raises(UsageError, match="endingEpoch and endingTimestamp both say where to end"):
        read_options(P | {"endingEpoch": "3", "endingTimestamp": NINE.said})
    with pytest.raises(UsageError, match="asOfEpoch and versionAsOf both say which state to read"):
        read_options(P | {"asOfEpoch": "3", "versionAsOf": "3"})
    with pytest.raises(UsageError, match="timestampAsOf asks for a state and endingTimestamp for changes"):
        read_options(P | {"timestampAsOf": NINE.said, "endingTimestamp": NINE.said})
    with pytest.raises(UsageError, match=r"startingTimestamp 2026.* is after endingTimestamp 2025"):
        read_options(P | {"startingTimestamp": NINE.said, "endingTimestamp": "2025-01-01"})


def test_several_daemons_may_each_have_a_time() -> None:
    urls = {"url": "tcp://a:1,tcp://b:2"}
    said = f'{{"tcp://b:2": "{NINE.said}", "tcp://a:1": "2026-11-23"}}'
    times = (Moment(NINE.micros + 15 * 3600 * 10**6, "2026-11-23"), NINE)
    assert stream_options(P | urls | {"startingTimestamp": said}).starts == times
    assert read_options(P | urls | {"timestampAsOf": said}).as_of == times


def test_times_of_a_topic_are_its_own() -> None:
    read = read_options({"topic": "t", "startingEpoch": "[3]", "endingEpoch": "[3, 4]"})
    assert (read.firsts, read.lasts) == (((3,),), ((3, 4),))
    with pytest.raises(UsageError, match=r"endingTimestamp is a time.*give endingEpoch, such as \[12\]"):
        read_options({"topic": "t", "endingTimestamp": NINE.said})
    with pytest.raises(UsageError, match="timestampAsOf is about the facts of a space"):
        read_options({"topic": "t", "timestampAsOf": NINE.said})


def test_a_pattern_is_needed() -> None:
    with pytest.raises(UsageError, match="option pattern is missing"):
        stream_options({})
    with pytest.raises(UsageError, match="option pattern is missing"):
        source_shape({"url": "tcp://a:1"})


def test_the_schema_is_asked_for_with_options_of_either_verb() -> None:
    assert source_shape(P | {"asOfEpoch": "3"}) == source_shape(P | {"pollTimeout": "1"})
    shape = source_shape(P | {"url": "tcp://a, tcp://b", "includeValue": "true"})
    assert (shape.pattern, shape.include_value, shape.several) == ("p($)", True, True)


def test_several_daemons_each_have_a_start() -> None:
    urls = {"url": "tcp://a:1,tcp://b:2"}
    assert stream_options(P | urls).starts == ("snapshot", "snapshot")
    said = stream_options(P | urls | {"startingEpoch": '{"tcp://b:2": "latest", "tcp://a:1": 7}'})
    assert said.starts == (7, "latest")
    with pytest.raises(UsageError, match="one for each of tcp://a:1, tcp://b:2 and no others"):
        stream_options(P | urls | {"startingEpoch": '{"tcp://a:1": 7}'})
    read = read_options(P | urls | {"startingEpoch": '{"tcp://b:2": 3, "tcp://a:1": 7}', "endingEpoch": "9"})
    assert (read.firsts, read.lasts) == ((7, 3), (9, 9))
    assert read_options(P | urls | {"asOfEpoch": '{"tcp://b:2": "latest", "tcp://a:1": 7}'}).as_of == (
        7,
        "latest",
    )
    with pytest.raises(UsageError, match="names the daemon tcp://a:1 twice"):
        stream_options(P | {"url": "tcp://a:1,tcp://a:1"})
    with pytest.raises(UsageError, match="a result goes to one daemon"):
        sink_options({"label": "p", "url": "tcp://a:1,tcp://b:2"})


def urls(given: dict[str, str]) -> tuple[str, ...]:
    return tuple([peer.url for peer in stream_options(given).peers])


def test_a_token_comes_from_the_option_a_file_the_environment_and_shows_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def token(given: dict[str, str]) -> str:
        options = stream_options(P | given)
        assert "secret" not in repr(options)
        return options.peers[0].token

    monkeypatch.delenv("DATASPACE_TOKEN", raising=False)
    monkeypatch.delenv("DATASPACE_TOKEN_FILE", raising=False)
    (tmp_path / "token").write_text("secret of a file\n")
    file = {"tokenFile": str(tmp_path / "token")}
    assert token({}) == ""
    monkeypatch.setenv("DATASPACE_TOKEN", "secret of the environment")
    assert token({}) == "secret of the environment"
    assert token(file) == "secret of a file"
    assert token({"token": "secret"}) == "secret"
    with pytest.raises(UsageError, match="give one of them"):
        token(file | {"token": "secret"})
    with pytest.raises(UsageError, match="no token can be read"):
        token({"tokenFile": str(tmp_path / "none")})


def test_tls_is_said_file_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASPACE_TLS_CA", "environment.pem")
    said = {"url": "tls://a:1", "tlsCertificate": "own.pem", "tlsServerName": "b"}
    (peer,) = stream_options(P | said).peers
    assert peer.tls == Tls("environment.pem", "own.pem", None, "b")
    assert sink_options({"label": "p", "tlsCa": "ca.pem"}).peer.tls.ca == "ca.pem"


def test_the_address_comes_from_the_option_the_path_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATASPACE_URL", raising=False)
    assert urls(P) == ("tcp://127.0.0.1:7377",)
    monkeypatch.setenv("DATASPACE_URL", "tcp://env:1")
    assert urls(P) == ("tcp://env:1",)
    assert urls(P | {"path": "tcp://path:1"}) == ("tcp://path:1",)
    assert urls(P | {"url": "tcp://url:1"}) == ("tcp://url:1",)
    with pytest.raises(UsageError, match="no address"):
        stream_options(P | {"url": "http://url:1"})
    with pytest.raises(UsageError, match="named twice"):
        stream_options(P | {"url": "tcp://url:1", "path": "tcp://path:1"})


def test_a_sink_has_a_template_or_a_label() -> None:
    assert sink_options({"template": "p($x)"}).template == "p($x)"
    assert sink_options({"label": "p"}).label == "p"
    with pytest.raises(UsageError, match="either a template"):
        sink_options({})
    with pytest.raises(UsageError, match="template and label both say what a row becomes"):
        sink_options({"template": "p($x)", "label": "p"})


def test_a_repeatable_write_names_its_application_and_its_version() -> None:
    options = sink_options({"label": "p", "txnAppId": "a", "txnVersion": "0"})
    assert (options.application, options.version) == ("a", 0)
    with pytest.raises(UsageError, match="go together"):
        sink_options({"label": "p", "txnAppId": "a"})


def test_spans_of_time_have_units() -> None:
    assert [seconds(text) for text in ("30", "250ms", "1.5s", "2m")] == [30.0, 0.25, 1.5, 120.0]


def listed(heading: str) -> set[str]:
    """The options in the tables of a chapter of SPARK.md."""
    text = (Path(options.__file__).parents[1] / "SPARK.md").read_text()
    chapter = text.split(f"\n## {heading}\n")[1].split("\n### ")[0]
    cells = re.findall(r"^\| (`.*?) \|", chapter, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_option_is_in_a_table_and_nothing_else_is() -> None:
    shared = set(options._SHARED) - {"path"}  # which is what load() is given
    source = {*options._KNOWN["readStream"], *options._KNOWN["read"]} - {"path"}
    assert listed("The source") == source
    assert listed("The sink") | shared == set(options._KNOWN["write"]) - {"path"}


def test_a_writer_that_is_a_lease_is_refused_and_answered_with_the_option_that_means_it() -> None:
    for writer in ("lease:500:foo", "lease:", " lease:1:x"):
        with pytest.raises(UsageError, match=r"option writer .*owner=query .*lease="):
            sink_options({"label": "p", "writer": writer})
    assert sink_options({"label": "p", "writer": "leases"}).writer == "leases"


@pytest.mark.parametrize("given", [{"txnAppId": "a"}, {"txnVersion": "1"}])
def test_half_of_a_transaction_is_answered_with_the_half_that_is_missing(given: dict[str, str]) -> None:
    (there,) = given
    missing = "txnVersion" if there == "txnAppId" else "txnAppId"
    with pytest.raises(UsageError, match=f"option {there} is given without {missing}"):
        sink_options({"label": "p", **given})


def test_a_table_of_the_catalog_is_answered_with_what_works() -> None:
    given = {"owner": "root", "option.url": "tcp://a:1", "option.pattern": "p($)", "provider": "dataspace"}
    with pytest.raises(UsageError, match=r"CREATE TEMPORARY VIEW .* OPTIONS .*SELECT … FROM t WITH"):
        source_shape(given)
    with pytest.raises(UsageError, match=r"option patern is unknown.*did you mean pattern\?.*FROM t WITH"):
        source_shape({"option.patern": "p($)"})
    with pytest.raises(UsageError, match=r"option pattern is missing.*FROM t WITH"):
        read_options({})


A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


def test_bars_divide_the_addresses_of_one_store_and_commas_divide_stores() -> None:
    read = stream_options(P | {"url": f"{A} | {B}, {C}"})
    assert [(peer.url, peer.others) for peer in read.peers] == [(A, (B,)), (C, ())]
    assert source_shape(P | {"url": f"{A}|{B}"}).several is False
    assert source_shape(P | {"url": f"{A}|{B},{C}"}).several is True
    assert sink_options({"label": "p", "url": f"{A}|{B}"}).peer.others == (B,)


def test_epochs_of_stores_are_known_by_their_first_addresses() -> None:
    """So that a checkpoint goes on where another daemon of the store leads."""
    for key in (A, f"{A}|{B}"):
        read = stream_options(P | {"url": f"{A}|{B},{C}", "startingEpoch": f'{{"{key}": 3, "{C}": 4}}'})
        assert read.starts == (3, 4)


def test_a_store_is_named_once() -> None:
    with pytest.raises(UsageError, match="names the daemon tcp://a:1 twice"):
        stream_options(P | {"url": f"{A}|{B},{A}"})
    with pytest.raises(UsageError, match="goes to one daemon"):
        sink_options({"label": "p", "url": f"{A}|{B},{C}"})


def test_the_environment_names_one_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """There commas divide its addresses, as in all other clients: it is not read twice."""
    monkeypatch.setenv("DATASPACE_URL", f"{A},{B}")
    assert [(peer.url, peer.others) for peer in stream_options(P).peers] == [(A, (B,))]
    assert sink_options({"label": "p"}).peer.others == (B,)


def test_reads_go_to_the_leader_unless_any_will_do() -> None:
    assert stream_options(P).read == "leader" and read_options(P | {"read": "ANY"}).read == "any"
    with pytest.raises(UsageError, match="leader and any"):
        stream_options(P | {"read": "followers"})
    with pytest.raises(UsageError, match="read is one of"):
        sink_options({"label": "p", "read": "any"})


def test_an_archive_needs_no_daemon_unless_the_daemon_is_to_keep_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATASPACE_URL", raising=False)
    alone = stream_options(P | {"archive": "/a"}).peers
    assert [(each.url, each.archive, each.shown) for each in alone] == [("", "/a", "/a")]
    both = read_options(P | {"archive": "s3://key:secret@b/a", "url": "tcp://h:1"}).peers
    assert [(each.url, each.shown) for each in both] == [("tcp://h:1", "tcp://h:1")]
    assert read_options(P | {"archive": "s3://key:secret@b/a"}).peers[0].shown == "s3://…@b/a"
    with pytest.raises(UsageError, match="readerName has a daemon keep what is unread, and there is none"):
        stream_options(P | {"archive": "/a", "readerName": "r"})
    with pytest.raises(UsageError, match="archiveIdentity chooses a log of an archive: give archive too"):
        read_options(P | {"archiveIdentity": "x"})
    with pytest.raises(UsageError, match="archive has the epochs of spaces, and a topic is read"):
        read_options(P | {"archive": "/a", "topic": "t"})
    monkeypatch.setenv("DATASPACE_URL", "tcp://e:2")
    assert read_options(P | {"archive": "/a"}).peers[0].url == "tcp://e:2"
