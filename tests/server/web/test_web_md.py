"""What WEB.md shows is what a daemon says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import trio

import server
from server.config.settings import SETTINGS
from tests.server.web_client import JSON, Doors, WebPeer, masked

PAGE = (Path(server.__file__).parent / "WEB.md").read_text(encoding="utf-8")


def fits(said: object, shown: object) -> bool:
    """True if something is as shown, where ``…`` stands for anything."""
    if shown == "…":
        return True
    if isinstance(shown, list) and isinstance(said, list):
        return len(said) == len(shown) and all(map(fits, said, shown))
    if isinstance(shown, dict) and isinstance(said, dict):
        return said.keys() == shown.keys() and all(fits(said[at], shown[at]) for at in shown)
    return repr(said) == repr(shown)


async def test_the_recorded_session_is_answered_as_shown(doors: Doors) -> None:
    recorded = PAGE.partition("<!-- recorded -->")[2].partition("<!-- /recorded -->")[0]
    steps = re.findall(r"^> (.*)\n((?:< .*\n)+)", recorded, re.MULTILINE)
    assert len(steps) == 9
    with trio.fail_after(20):
        async with WebPeer(doors.port, JSON) as peer:
            for request, answers in steps:
                await peer.shout(masked(0x81, request.encode()))
                shown = [json.loads(line[2:]) for line in answers.splitlines()]
                said = [await said_by(peer) for _ in shown]
                assert fits(sorted(said, key=number), sorted(shown, key=number)), (said, shown)


async def said_by(peer: WebPeer) -> list[object]:
    found = await peer.frame()
    assert found is not None and found[0] == 0x81
    said = json.loads(found[1])
    assert isinstance(said, list)
    return said


def number(packet: list[object]) -> int:
    assert isinstance(packet[0], int)
    return packet[0]


def test_every_setting_is_listed() -> None:
    listed = set(re.findall(r"^\| `(web\.\w+)`", PAGE, re.MULTILINE))
    assert listed == {each.name for each in SETTINGS if each.name.startswith("web.")}
