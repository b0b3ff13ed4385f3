"""Spark's files as tests use them, in a folder of the environment for each version, there for all runs.

It is PySpark's installation but for the zip of pyspark, which every new process of Python would unpack.
Without it they import what is installed, in a third of the time; each query starts two or three.  What they
compile of this project is kept beside it, whatever the environment says about that.

    python -m tests.relay.spark.home

adds what Java keeps of the classes that Spark loads: a start of Spark then takes half the CPU time, and tests
start some thirty.  ``make test`` does this once; without it, and with another Java, Spark starts as ever.

Always: the folder is whole as soon as it is there.  Java takes classes only from the very files, at the very
paths, that it has them from.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest

HOME: Final = Path(sys.prefix) / "spark" / pyspark.__version__
CLASSES: Final = HOME / "classes.jsa"
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for programs that end soon: they take half the CPU time to start."""

WITH_CLASSES: Final = f'"-XX:SharedArchiveFile={CLASSES}" -Xlog:disable'
"""Options of Java that take classes from here; where they do not fit nothing is said of it."""


def made() -> Path:
    """Returns the folder, which is made if it is not there."""
    installed = Path(pyspark.__file__).parent
    if (HOME / "jars").exists() and (HOME / "jars").samefile(installed / "jars"):
        return HOME
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.parent.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=HOME.parent))
    for part in ("bin", "jars"):
        (new / part).symlink_to(installed / part)
    (new / "python" / "lib").mkdir(parents=True)
    for archive in (installed / "python" / "lib").glob("py4j-*.zip"):
        (new / "python" / "lib" / archive.name).symlink_to(archive)
    if installed.parent != Path(pytest.__file__).parents[1]:  # another PySpark, in front of what is installed
        (new / "python" / "lib" / "pyspark.zip").symlink_to(installed.parent)  # as Python can import from
    try:
        new.rename(HOME)
    except OSError:  # another process was first
        shutil.rmtree(new)
    return HOME


def environment() -> dict[str, str]:
    """Returns the variables with which programs start Spark from here."""
    found = {"SPARK_HOME": str(made()), "SPARK_LAUNCHER_OPTS": QUICK}
    found["PYTHONPYCACHEPREFIX"] = os.environ.get("PYTHONPYCACHEPREFIX", str(HOME / "bytecode"))
    return found | {"SPARK_SUBMIT_OPTS": WITH_CLASSES} if CLASSES.exists() else found


def java_options() -> str:
    """Returns the options of programs of Spark that are no session."""
    return f"{QUICK} {WITH_CLASSES}" if CLASSES.exists() else QUICK


def keep_classes() -> None:
    """Runs a few queries, and has Java keep the classes that it has loaded for them."""
    from pyspark.sql import SparkSession

    import dataspace.spark
    from examples.spark import joined, presence, upserts
    from examples.spark.common import daemons

    new = CLASSES.with_name(f"new-{os.getpid()}.jsa")
    os.environ |= environment() | {"SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={new}" -Xlog:disable'}
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", QUICK)
    spark = dataspace.spark.session(builder)
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = spark.sparkContext._gateway
    for run, count in ((presence.run, 1), (upserts.run, 1), (joined.run, 2)):
        with daemons(count) as (folder, urls):
            run(spark, folder, *urls)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which ends Java, in good order
    gateway.proc.wait()
    if new.exists():
        new.replace(CLASSES)


if __name__ == "__main__":
    keep_classes()
