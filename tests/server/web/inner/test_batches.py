"""A frame of values is read the same without decoding it first."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.codec import unpack_own
from dataspace.wire.frames import HEAD
from dataspace.wire.packets import Values, read
from dataspace.wire.session import encode
from relay.delivery.outbox import OutStream
from server.web.inner.batches import EventBatch, decoded

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)


@given(stream=NUMBERS, first=NUMBERS, count=st.integers(0, 40), left=NUMBERS)
def test_a_batch_is_what_its_frame_says(stream: int, first: int, count: int, left: int) -> None:
    values = tuple((at, "x") for at in range(count))
    body = encode(Values(stream, first, values, left))[HEAD:]
    batch = EventBatch(body)
    assert (batch.stream, batch.count, batch.size) == (stream, count, len(body))
    assert batch.values == values == decoded(batch.content)
    assert EventBatch(encode(Values(7, 1 << 40, values, left))[HEAD:]).content == batch.content


def test_a_large_batch_is_counted() -> None:
    for count in (15, 16, 70_000):
        assert EventBatch(encode(Values(1, 0, (1,) * count, 0))[HEAD:]).count == count


def test_frames_as_the_daemon_writes_them_are_batches() -> None:
    class Waiting:
        used = failure = 0

        def __len__(self) -> int:
            return 5

        def take_packed(self, count: int, _size: int) -> tuple[int, bytes]:
            return min(count, 2), b"\x01\x02"

    for number, sent in ((1, 0), (200, 1 << 20)):
        stream = OutStream(number, sent + 2, 1 << 30)
        stream.sent_items = sent
        stream.backlog = Waiting()  # type: ignore[assignment]  # as much of one as a frame takes
        frame = stream.next_frame()
        assert frame is not None
        batch = EventBatch(frame[0][HEAD:])
        packet = read(unpack_own(frame[0][HEAD:]))
        assert isinstance(packet, Values) and packet.first == sent
        assert (batch.stream, batch.count, batch.values) == (number, 2, packet.values)
