"""With a version of PySpark that the tuning was not written for, it is off, and the log says so once."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator

import pyspark
import pytest

from dataspace.errors import UsageError
from relay.spark.source.source import ChangesStream
from relay.spark.tuning import bytecode, internals


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    internals._is_known_here.cache_clear()
    yield
    internals._is_known_here.cache_clear()


def test_the_version_that_is_installed_is_one_that_it_was_written_for() -> None:
    assert internals.is_known()
    assert internals.supported()


@pytest.mark.usefixtures("another")
def test_with_another_version_nothing_leans_on_internals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dataspace.spark")
    assert not internals.supported()
    assert internals.carrier(ChangesStream) is ChangesStream
    monkeypatch.setattr(internals, "is_worker", lambda: True)
    before = gc.get_freeze_count()
    internals.spare_collections()
    assert gc.get_freeze_count() == before
    with pytest.raises(UsageError, match=r"PySpark is another than 4.2.x, 4.3.x"):
        bytecode.archives()
    here = threading.get_ident()  # other threads may still repeat the question of an earlier test
    assert [record.getMessage() for record in caplog.records if record.thread == here] == [
        "PySpark 4.4.0 is not one of 4.2.x, 4.3.x, for which relay/spark/tuning was written: it is off"
    ]


@pytest.mark.usefixtures("another")
def test_with_another_version_small_batches_go_through_tasks() -> None:
    from relay.spark.common.options import stream_options
    from relay.spark.common.schema import inferred
    from relay.spark.source.source import carried, columns_of

    options = stream_options({"pattern": "p($n:int)"})
    assert carried([], options, columns_of(options, inferred("p($n:int)"))) is None
