"""Spark's own servers out of PySpark's jars, each a program: a standalone cluster, and Spark Connect."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

import dataspace.version
from tests.relay.spark.home import QUICK, java_options

BIN = Path(pyspark.__file__).parent / "bin"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Programs:
    """Some programs, each in a session of its own, which all end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[subprocess.Popen[bytes]] = []

    def _start(self, *command: str, said: str) -> str:
        """Starts one and waits until it says something that the expression finds; its first group."""
        environment = os.environ | {
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(dataspace.version.__file__).parents[1]),
        }
        log = self._folder / f"log {len(self._programs)}"
        with log.open("w") as told:
            program = subprocess.Popen(
                command, stderr=told, stdout=told, env=environment, start_new_session=True, cwd=self._folder
            )
        self._programs.append(program)
        while program.poll() is None:
            found = re.search(said, log.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"{command} ended with {program.wait()}: {log.read_text()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for program in reversed(self._programs):
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            program.wait(30)


class Cluster(Programs):
    """A master and two workers with one core each; ``master`` is what a session connects to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        run = str(BIN / "spark-class")
        self.master = self._start(run, MASTER, *place, said=r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work {number}")]
            self._start(
                run, WORKER, *place, *work, self.master, said=r"(Successfully registered) with master"
            )

    @property
    def sessions(self) -> set[int]:
        """The sessions, as the kernel numbers them, that all processes of the cluster are in."""
        return {program.pid for program in self._programs}


class ConnectServer(Programs):
    """A Spark Connect server with a local Spark; ``url`` is what a client connects to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(BIN / "spark-submit"), "--class", CONNECT, "--master", "local[2]", *given]
        place = self._start(*command, "spark-internal", said=r"Spark Connect server started at: (\S+:\d+)\n")
        self.url = f"sc://{place}"


def python_workers(sessions: set[int]) -> list[int]:
    """The processes in these sessions that run Python for Spark's tasks and planners, by their numbers."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _session_of(entry) in sessions and "pyspark.daemon" in _words(entry):
            found.append(int(entry.name))
    return sorted(found)


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
