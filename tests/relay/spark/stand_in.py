"""Spark starts this in place of Python: it asks for a forked planning process, and runs all else as Python.

``python -IS stand_in.py PLACE PYTHON WORDS…``: ``warm_planners`` listens at ``PLACE``, and ``PYTHON WORDS…``
is what Spark asked for.  This loads little, since it is run for every query.

Always: it ends when the forked process does.  The forked process ends when this one does, however that is
killed: it sees the end of a pipe that is open here.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys


def fork(place: str, words: list[str]) -> int:
    """Has a process forked, and returns a descriptor of it; -1 where none can be."""
    reading, _ = os.pipe()  # the other end is closed by the end of this process, and by nothing else
    said = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(place)
            socket.send_fds(asking, [said], [0, 1, 2, reading])
            received = socket.recv_fds(asking, 1, 1)[1]
        except OSError:  # nobody forks any more
            received = []
    os.close(reading)
    return received[0] if received else -1


def main(place: str, python: str, *words: str) -> None:
    if words[:2] == ("-m", "pyspark.sql.streaming.python_streaming_source_runner"):
        forked = fork(place, list(words[1:]))
        if forked != -1:
            ended = select.poll()
            ended.register(forked, select.POLLIN)
            ended.poll()
            return
    os.execv(python, [python, *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
