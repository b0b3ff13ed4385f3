"""Defects in what observers and followers are shown, in the log, and in what it lets go."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "relay.delivery.gate": [
        ("shown-before-it-is-on-disk", "DurableGate.close", "self.closed = True", "pass"),
        ("shown-one-epoch-early", "DurableGate._show", "kept[0][0] <= upto", "kept[0][0] <= upto + 1"),
        (
            "shown-out-of-order",
            "DurableGate.offer_when_durable",
            "number > self.durable or self._kept",
            "number > self.durable",
        ),
    ],
    "relay.delivery.net_changes": [
        ("net-of-messages", "NetChange.fold", "self.messages += messages", "self.messages = messages"),
        ("came-and-went-is-shown", "NetChange._turn", "net.pop(at, None)", "None"),
        ("net-begins-at-its-end", "NetChange.fold", "self.epochs += 1", "self.first = changes.number"),
    ],
    "relay.following.following": [
        ("segment-taken-twice", "Following._take_all", "self.state.segment = segment.ordinal", "pass"),
        (
            "follower-counts-silent-epochs",
            "Following._take",
            "self._durable = epoch.number",
            "self._durable += 1",
        ),
        ("follower-forgets-its-notes", "Following._take_all", "self.state.apply(item)", "pass"),
        ("trimmed-follower-keeps-its-state", "Following._begin_anew", "self._jump(state)", "pass"),
    ],
    "relay.log.retention": [
        (
            "log-goes-before-its-archive",
            "Retention.first_kept",
            "return min(wanted, max(archived + 1, most))",
            "return wanted",
        ),
        (
            "log-goes-before-its-groups",
            "Retention.kept_for_registers",
            "return min(wanted, max(needed, _newest_of(chain, self.reader_size)))",
            "return wanted",
        ),
        ("reader-goes-back", "Readers.acknowledge", "max(epoch, before.epoch if before else 0)", "epoch"),
    ],
    "relay.log.compaction": [
        (
            "joined-across-the-snapshot",
            "SegmentJoiner.segments",
            "size + len(segment.body) > SEGMENT_BYTES or (group and group[-1].ordinal in self._old)",
            "size + len(segment.body) > SEGMENT_BYTES",
        ),
    ],
}
