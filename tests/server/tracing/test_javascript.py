"""The JavaScript client says of which trace its turns are a part, to a daemon that makes spans."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.conformance.driving import javascript, program
from tests.conformance.test_javascript import connected, daemon, said
from tests.conformance.test_javascript_verbs import ask
from tests.server.tracing.collectors import Collector
from tests.server.tracing.conftest import Serving
from tests.server.tracing.test_spans import CAUSE, RECORDED, TRACE

pytestmark = pytest.mark.slow


async def test_turns_and_puts_are_parts_of_the_trace_that_they_state(
    serving: Serving, collector: Collector
) -> None:
    async with serving(ratio=0.0, listen=("http:127.0.0.1:0",)) as (url,), program(*javascript()) as page:
        for owner in ("", "results"):
            await connected(page, url, owner=owner)
            await page.event("connection")
            send = ["send", said("bell")]
            turned = await ask(page, "turn", do="turn", actions=[send], traceparent=RECORDED)
            await ask(page, "turn", do="turn", actions=[send])
            value = said("config", "rate", 7)
            put = await ask(page, "put", do="put", value=value, traceparent=RECORDED)
            assert turned["epoch"] < put["epoch"]
            await page.do({"do": "close"})
            await page.event("close")
    roots = [each for each in collector.spans if each.name in ("turn", "publish")]
    assert [each.name for each in roots] == ["turn"] * 4, "a put is a turn"
    assert {(each.trace, each.parent) for each in roots} == {(TRACE, CAUSE)}


WRONG: Final = (
    "4bf9",
    RECORDED.upper(),
    RECORDED + "-more",  # of this version
    "ff" + RECORDED[2:],
    f"00-{'0' * 32}-{CAUSE}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"01-{TRACE}-{CAUSE}-01-{'x' * 512}",
    7,
)


async def test_what_is_no_traceparent_is_refused_by_the_client(tmp_path: Path) -> None:
    async with daemon(tmp_path) as (_, http), program(*javascript()) as page:
        await connected(page, http)
        for text in WRONG:
            for command in ({"do": "turn", "actions": []}, {"do": "put", "value": said("config", "rate", 7)}):
                told = await ask(page, "told", **command, traceparent=text)
                assert told["error"] == "usage-error", text
                assert "a traceparent such as 00-" in told["text"]
        later = f"01-{TRACE}-{CAUSE}-01-more\nand more"
        told = await ask(page, "told", do="turn", actions=[["send", said("bell")]], traceparent=later)
        assert "epoch" in told, "a later version is taken as far as this one goes"
