"""Loading: what a daemon and the process of an isolated actor both do when they start.

It is apart from both so that such a process loads nothing of the daemon.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dataspace.actors.engine.actors import Handler
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.tracing import Trace, TurnRecord
from dataspace.actors.engine.turns import Turn
from dataspace.actors.rendering import BEGINNING, Diagram, Text
from dataspace.errors import InternalError, UsageError
from dataspace.flows.flows import Flow
from server.config.functions import imported, named
from server.config.hosted import HostedFlow

logger = logging.getLogger("dataspace.actors")


def boot_function(name: str, *, load: bool = True, what: str = "actor") -> Handler:
    """Returns the function of ``module:function``; raises ``UsageError`` if there is none.

    Modules in the current directory are found, as with ``python -m``.  Without ``load`` the module is
    searched but not run: another process will run it.  ``what`` is the kind of function, for messages.
    """
    if load:
        return imported(name, what)
    module, _ = named(name, what)
    try:
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"No module named {module!r}")
    except ImportError as error:
        raise UsageError(f"{what} {name}: {error}") from error
    return _elsewhere


def _elsewhere(_turn: Turn) -> None:
    raise InternalError("an isolated actor was started in the daemon")


@contextmanager
def traced(engine: Engine, file: Path | None, *, origin: str = "") -> Iterator[None]:
    """Appends every turn of an engine to a file, each as it ends and in one piece.

    ``origin`` is put before the numbers of turns, for several processes may write to the same file.  A file
    whose name ends in ``.mmd`` gets a mermaid diagram, any other one text.
    """
    if file is None:
        yield
        return
    with file.open("ab", buffering=0) as out:
        draw = file.suffix == ".mmd"
        if draw and not out.tell():
            out.write(f"{BEGINNING}\n".encode())
        lines = Diagram() if draw else Text(origin)

        def write(turn: TurnRecord) -> None:
            text = "".join([f"{line}\n" for line in lines.of(turn)])
            try:
                out.write(text.encode(errors="backslashreplace"))
            except OSError as error:  # no reason to end the traced actors
                engine.tracer = None
                logger.error("turns are not traced any more: %s: %s", file, error)

        engine.tracer = Trace(report=write, keep=False)
        try:
            yield
        finally:
            engine.tracer = None


def made_flow(settings: HostedFlow) -> Flow:
    """Returns the flow that a setting names; raises ``UsageError`` for a flow that cannot be made."""
    make = boot_function(settings.run, what="flow")
    try:
        flow: object = make(*settings.arguments)
    except Exception as error:  # a flow's fence: user code, which the error names
        raise UsageError(f"flow {settings.title}: {type(error).__name__}: {error}") from error
    if not isinstance(flow, Flow):
        raise UsageError(f"flow {settings.title}: {settings.run} made {flow!r:.80}, and not a Flow")
    return flow
