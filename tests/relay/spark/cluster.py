"""A standalone cluster out of PySpark's own jars: a master and two workers, as programs of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """Two workers with one core each; ``master`` is what a session connects to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[subprocess.Popen[bytes]] = []
        self.master = self._start(MASTER, said=r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work {number}")]
            self._start(WORKER, *work, self.master, said=r"(Successfully registered) with master")

    def _start(self, kind: str, *arguments: str, said: str) -> str:
        command = [str(SPARK_CLASS), kind, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        environment = os.environ | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        log = self._folder / f"log {len(self._programs)}"
        with log.open("w") as told:
            program = subprocess.Popen(
                [*command, *arguments],
                stderr=told,
                stdout=told,
                env=environment,
                start_new_session=True,
                cwd=self._folder,
            )
        self._programs.append(program)
        while program.poll() is None:
            found = re.search(said, log.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"{kind} ended with {program.wait()}: {log.read_text()}")

    def python_workers(self) -> list[int]:
        """The processes that run Python for the executors, by their numbers."""
        ours = {program.pid for program in self._programs}
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _session_of(entry) in ours and "pyspark.daemon" in _words(entry):
                found.append(int(entry.name))
        return sorted(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for program in reversed(self._programs):
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            program.wait(30)


def _session_of(entry: Path) -> int:
    """The session that a process belongs to: that of the program which started it."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:  # it has just ended
        return 0


def _words(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_text().split("\0")
    except OSError:
        return []
