"""Sessions of Spark that know the format, configured for Python sources.

``session`` makes one, ``configure`` prepares a builder, ``register`` adds the format to a session that is
there.  Importing this loads neither Spark nor Arrow.

Always: a worker of Spark that imports this package loads nothing of the daemon.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dataspace.version
from dataspace.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Registers ``format("dataspace")`` in a session and returns the session; may be repeated.

    Warns where the workers of a local Spark run another Python than this one, which may lack this package.
    """
    with extra_named():
        from relay.spark.format import Dataspace

        spark.dataSource.register(Dataspace)
    _warn_of_another_python(spark)
    return spark


@contextmanager
def extra_named() -> Iterator[None]:
    """Raises ``UsageError`` with the extra to install where a module of the extra ``spark`` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in ("pyspark", "pyarrow", "py4j"):
            raise
        raise UsageError(
            f"{name} is not installed, and dataspace.spark needs it: pip install 'dataspace-server[spark]'"
        ) from None


def _warn_of_another_python(spark: SparkSession) -> None:
    """Warns where a local Spark's workers run a Python with other packages, or of another version."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or not str(context.master).startswith("local"):
        return
    wanted = str(context.pythonExec)
    found = shutil.which(wanted)
    if found is not None and (Path(found).parent == Path(sys.executable).parent or _is_this_python(found)):
        return
    warnings.warn(
        f"Spark's workers run {found or wanted}, and this is {sys.executable}, so they may lack dataspace: "
        f"set PYSPARK_PYTHON={sys.executable} before the session is made",
        stacklevel=3,
    )


def _is_this_python(path: str) -> bool:
    """True if a Python has the packages of this one: the same prefix, and the same version."""
    command = [path, "-c", "import sys; print(sys.prefix, *sys.version_info[:2])"]
    here = f"{sys.prefix} {sys.version_info[0]} {sys.version_info[1]}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == here


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
    wanted = {**_QUICK, **(_local() if local_checkpoints else {}), **_executors_path()}
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
    with extra_named():
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


def _local() -> dict[str, str]:
    """Returns the setting for checkpoints on local disks."""
    with extra_named():
        from relay.spark.common.versions import checkpoint_manager

    return {"spark.sql.streaming.checkpointFileManagerClass": checkpoint_manager()}


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
