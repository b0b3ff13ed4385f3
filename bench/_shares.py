"""A large state in micro-batches, beside a small one: what a batch costs the daemon.

Part of ``bench/spark.py``.  Two daemons have 300 MB and 30 MB of facts of the same size.  Both are asked
as the source asks under ``maxChangesPerTrigger=50000``: for the end of a batch, and then for its rows.  The
first question sorts the state, and is counted by itself.

Always: the states are read by turns, on connections of their own.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench._processes import cpu_seconds, resident_bytes, serving
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.packed import PackedColumns
from dataspace.client.bulk.states import share_end
from dataspace.wire.observing import NUMBERS
from index.patterns.text import parse_pattern
from index.values.values import Value

BATCH: Final = 50_000
SMALL: Final = 50_000
LARGE: Final = 500_000
WIDTH: Final = 560
"""Characters in one field of a fact; its other fields, the label and the rest make it 600 bytes."""

PATTERN: Final = "seat($entity, $name, $value)"
TURN: Final = 2_000


@dataclass
class _State:
    """A state of so many facts on a daemon of its own, and the CPU seconds of each batch of it so far."""

    link: BulkClient
    pid: int
    rows: int
    pattern: Value = field(default_factory=lambda: parse_pattern(PATTERN))
    batches: list[float] = field(default_factory=list)
    epoch: int = 0

    def fill(self) -> None:
        for sequence, start in enumerate(range(0, self.rows, TURN), 1):
            numbers = [*range(start, min(start + TURN, self.rows))]
            names = [f"{number:012d}".ljust(WIDTH, "x") for number in numbers]
            columns = [numbers, names, [number / 8 for number in numbers]]
            body = PackedColumns("assert", "seat", columns, len(numbers)).packed()
            self.epoch = self.link.publish([body], client="fill", sequence=sequence, owner="bench")

    def end(self, low: int) -> int:
        return share_end(self.link, self.pattern, self.epoch, (low, BATCH), traced=(False, False))

    def sort(self) -> tuple[float, float, float]:
        """Asks for the first end, which sorts the state.

        Returns the CPU seconds of that for a row, and the megabytes of memory before and at most meanwhile.
        """
        while self._is_busy():  # with a snapshot of what was written
            pass
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # begins the peak anew
        memory, before = resident_bytes(self.pid), cpu_seconds(self.pid)
        self.end(0)
        return (cpu_seconds(self.pid) - before) / self.rows, memory / 1e6, _peak_bytes(self.pid) / 1e6

    def _is_busy(self) -> bool:
        before = cpu_seconds(self.pid)
        time.sleep(0.5)
        return cpu_seconds(self.pid) - before > 0.02

    def read(self) -> None:
        """Reads the whole state, batch by batch."""
        low = rows = 0
        while low < NUMBERS:
            before = cpu_seconds(self.pid)
            high = self.end(low)
            blocks = self.link.columns(
                self.pattern, upto=self.epoch, as_of=self.epoch, share=(low, high), places=True
            )
            rows += sum(map(len, blocks))
            self.batches.append(cpu_seconds(self.pid) - before)
            low = high
        assert rows == self.rows, f"{rows} of {self.rows} rows were read"


def measure_shares(*, rounds: int, quick: bool) -> dict[str, float]:
    """Returns the figures; a fiftieth of the facts if ``quick``, in one batch each."""
    with serving() as one, serving() as other, BulkClient(one.url) as first, BulkClient(other.url) as second:
        small = _State(first, one.pid, SMALL // 50 if quick else SMALL)
        large = _State(second, other.pid, LARGE // 50 if quick else LARGE)
        small.fill()
        large.fill()
        (small_sort, *_), (large_sort, memory, peak) = small.sort(), large.sort()
        for _ in range(rounds):
            for _ in range(large.rows // small.rows):
                small.read()
            large.read()
        batch = statistics.median(large.batches)
        return {
            "state_batch_cpu_ms": batch * 1000,
            "state_batch_ratio_small": batch / statistics.median(small.batches),
            "state_sort_cpu_us": large_sort * 1e6,
            "state_sort_ratio_small": large_sort / small_sort,
            "state_memory_mb": memory,
            "state_peak_mb": peak,
        }


def _peak_bytes(pid: int) -> int:
    """Returns the most memory that a process has had in use, as Linux says it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
