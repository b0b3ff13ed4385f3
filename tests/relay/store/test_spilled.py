"""What was added is read as it was, in memory or in a file, and the file ends with its last reader."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from relay.store import spilled
from relay.store.spilled import SortedRuns, SpilledBytes


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30), st.integers(1, 30))
def test_any_part_is_what_was_added(parts: list[bytes], held: int, written: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "HELD_BYTES", held)
        patch.setattr(spilled, "_WRITTEN", written)

        def pwrite(descriptor: int, some: bytes, at: int) -> int:
            return _pwrite(descriptor, some[:7], at)  # a part of it, as the system may

        patch.setattr(os, "pwrite", pwrite)
        made = SpilledBytes()
        for each in parts:
            made.add(each)
        whole = b"".join(parts)
        assert len(made) == len(whole) == made.held + made.spilled
        for start in range(0, len(whole) + 1, 3):
            for end in range(start, len(whole) + 1, 5):
                assert made.part(start, end) == whole[start:end]
        assert made.held < max(held, written) + 40


_pwrite = os.pwrite


def test_a_file_has_no_name_and_ends_with_its_last_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spilled, "HELD_BYTES", 1)
    made = SpilledBytes()
    made.add(b"something")
    descriptor = made._descriptor
    assert made.spilled == 9 and os.fstat(descriptor).st_size == 9 and not [*tmp_path.iterdir()]
    del made
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=30)))),
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=30))),
    st.integers(2, 5),
    st.integers(1, 100),
)
def test_runs_are_merged_to_what_sorting_makes(
    parts: list[list[tuple[int, bytes]]], last: list[tuple[int, bytes]], at_once: int, block: int
) -> None:
    """However many there are, and of several equal entries all are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "RUNS", at_once)
        patch.setattr(spilled, "BLOCK_BYTES", block)
        runs = SortedRuns()
        for each in parts:
            runs.add(iter(sorted(each)))
            assert len(runs) < at_once
        every = sorted([entry for each in (*parts, last) for entry in each])
        for _ in range(2):
            assert [*runs.merged(sorted(last))] == every
