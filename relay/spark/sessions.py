"""Sessions of Spark that know the format, configured for Python sources.

``session`` makes one, ``configure`` prepares a builder, ``register`` adds the format to a session that is
there.  Importing this loads neither Spark nor Arrow.

Always: a worker of Spark that imports this package loads nothing of the daemon.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dataspace.version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Registers ``format("dataspace")`` in a session and returns the session; may be repeated."""
    from relay.spark.format import Dataspace

    spark.dataSource.register(Dataspace)
    return spark


def configure(builder: SparkSession.Builder, *, local_checkpoints: bool = True) -> SparkSession.Builder:
    """Sets what makes Spark itself quick with Python sources, where the builder does not say otherwise.

    Unix sockets between Spark and its Python workers (40 ms less for every task), a checkpoint manager
    that writes local files directly (20 ms less for each of two a batch; pass ``local_checkpoints=False``
    where checkpoints lie in an object store), few shuffle partitions, and no web interface.

    It also sets environment variables that are not set: the workers' Python is this one, Spark listens on
    the loopback interface alone, and the workers of a local Spark find this package.  Warns where workers
    are not reused, since every task then takes a second.

    The builder of a client of Spark Connect is left as it is: all of this is for the server to be told.
    """
    given = dict(getattr(builder, "_options", {}))
    if str(given.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))).startswith("sc:"):
        return builder
    wanted = {**_QUICK, **(_LOCAL if local_checkpoints else {}), **_executors_path()}
    for name, value in wanted.items():
        if name not in given:
            builder = builder.config(name, value)
    if str(given.get("spark.python.worker.reuse", "true")).lower() == "false":
        warnings.warn("spark.python.worker.reuse=false: every Python task takes about 0.9 s", stacklevel=2)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _let_workers_import_us()
    return builder


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Returns a session, configured and with the format registered; without a builder, the active one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() if builder is None else None
    return register(active or configure(builder or SparkSession.builder).getOrCreate())


_TOP: Final = str(Path(dataspace.version.__file__).resolve().parents[1])
"""The folder from which ``dataspace`` is imported, in a checkout as in a wheel."""
_QUICK: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
_LOCAL: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def _let_workers_import_us() -> None:
    """Puts a checkout that is not installed on the path that a local Spark's workers inherit."""
    known = os.environ.get("PYTHONPATH", "")
    if "site-packages" not in _TOP and _TOP not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [known, _TOP]))


def _executors_path() -> dict[str, str]:
    """Returns the path on which executors find a checkout that is not installed; executors of other machines
    need it installed."""
    return {} if "site-packages" in _TOP else {"spark.executorEnv.PYTHONPATH": _TOP}


def register_in_active_session() -> None:
    """Registers the format where a session is active; Spark's workers have none."""
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            register(active)
