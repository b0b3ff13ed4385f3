"""Spark reads an archive in S3 (moto), by the format, and by ``frame`` without Hadoop's client for S3 too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.server.archiving.test_archive_stores import grow
from tests.server.upkeep.test_stores import STORES, path, s3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="a server of S3, for make torture"),
    pytest.mark.skipif(not (STORES / "ready").exists(), reason="no .venv/stores: make .venv/stores/ready"),
]

PROGRAM = """
import sys
import dataspace.spark

spark = dataspace.spark.session()
pattern, place = "part($n:int, $at:int, $x:float)", {"archive": sys.argv[1]}
reader = spark.read.format("dataspace").options(pattern=pattern, **place)
for frame in (reader.load(), dataspace.spark.frame(spark, pattern, **place)):
    print("rows", *frame.selectExpr("count(*)", "sum(hash(n, at, x, _epoch, _seq))").collect()[0])
"""


def rows(place: str, variables: dict[str, str]) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, place],
        env=os.environ | {"PYTHONPATH": path()} | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return [line for line in found.stdout.splitlines() if line.startswith("rows")]


def test_rows_are_those_of_the_same_archive_in_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    grow(data, Random(3))
    with s3(tmp_path) as place:
        for each in (place.url, tmp_path / "archive"):
            made = place.run("log", "archive", each, "--data", data)
            assert made.returncode == 0, made.stderr
        expected = rows(str(tmp_path / "archive"), {})
        assert len(expected) == 2 and expected[0] == expected[1]
        assert rows(place.url, place.right) == expected
