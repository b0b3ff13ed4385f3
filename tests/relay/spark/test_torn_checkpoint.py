"""What SPARK.md says to do about a checkpoint that a kill has torn while its first offsets were written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import stream
from tests.relay.spark.sink.test_sink import write_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_a_query_whose_first_offsets_were_torn_goes_on_once_they_and_the_state_are_deleted(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Callable[[], str]
) -> None:
    daemon.turn(f"+{label}(1)", f"+{label}(2)")

    def run(**form: str) -> None:
        counts = stream(spark, daemon.url, f"{label}($n:int)").groupBy().count()
        write_now(counts, daemon.url, checkpoint(), mode="complete", writer=label, **form)

    with pytest.raises(StreamingQueryException, match="the str that the template asks for"):
        run(template=f"n-{label}($count:str)")  # by which time it has offsets and a state
    folder = Path(checkpoint())
    assert not list((folder / "commits").glob("[0-9]*"))
    for torn in (b"", b"v1\n", (folder / "offsets" / "0").read_bytes()[:200]):
        (folder / "offsets" / "0").write_bytes(torn)
        (folder / "offsets" / ".0.crc").unlink(missing_ok=True)
        with pytest.raises(StreamingQueryException):
            run(label=f"n-{label}")
    (folder / "offsets" / "0").unlink()
    shutil.rmtree(folder / "state")
    run(label=f"n-{label}")
    assert daemon.facts(f"n-{label}($)") == [(2,)]
