"""Defects in following: what a daemon that follows another one reads, shows, and takes over."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "relay.following.following": [
        ("follower-wakes-nobody", "Following._tell", "self._moved.unpark_all()", "pass"),
        ("follower-writes-nothing", "Following._tell", "self._flush()", "pass"),
        ("promoted-before-the-rest", "Following.catch_up", "await self._read_on()", "False"),
        (
            "follower-answers-early",
            "Following.wait_durable",
            "self.durable < epoch",
            "self.durable + 1 < epoch",
        ),
        ("waiters-are-not-passed-on", "Following.succeed", "self._moved.unpark_all()", "pass"),
        ("follower-stays-before-a-start", "Following._pass", "before > self._durable", "False"),
        ("follower-without-recent-epochs", "Following._take", "self.recent.add(epoch, size)", "pass"),
        (
            "follower-ahead-of-itself",
            "Following._take",
            "self._durable = epoch.number",
            "self._durable = epoch.number + 1",
        ),
        ("followed-turns-forgotten", "Following._take", "self.state.apply_notes(epoch)", "pass"),
        ("follower-shows-nothing", "Following._take", "self._apply(epoch)", "pass"),
    ],
    "relay.journal.following": [
        ("followed-topic-untold", "TopicsFollowing._look", "self._moved(topic.step_log)", "pass"),
        (
            "followed-topics-looked-at-once",
            "TopicsFollowing._look",
            "more = more or segments is None or bool(segments)",
            "more = False",
        ),
        ("promoted-before-the-rest-of-topics", "TopicsFollowing.catch_up", "await self._pass()", "pass"),
        ("followed-topic-unannounced", "TopicsFollowing._begin", "self._appeared(topic.step_log)", "pass"),
    ],
}
