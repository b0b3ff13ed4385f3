"""Each task of the daemon that works for tenants has a fence, so that no defect in it ends the daemon.

A task that is begun through one of ``FENCES`` has one.  All others are in ``OTHERS``, with the function whose
handler stops what they raise, or with why no tenant reaches them.  A new task without a fence is found here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import server

TOP: Final = Path(server.__file__ or "").parent
BEGINNINGS: Final = ("start_soon", "spawn_system_task")
FENCES: Final = ("keep", "fence_role", "self._run_task", "self._run_fenced")
"""What runs a task, and begins it anew, begins its role anew, or ends one session."""

DAEMON: Final = "no tenant: "
OTHERS: Final = {
    # The file, and the task: the function that has the handler, or why there is none.
    "archiving/keeper.py self._order": "spaces/keeping.py keep",  # a task within ``_keep_process``
    "cluster/database/contact.py connection.run": "spaces/keeping.py keep",  # a task within ``link.run``
    "cluster/database/store.py self._measure": DAEMON + "it asks the database for its clock",
    "daemon/daemon.py _run": "spaces/keeping.py keep",  # as ``HostedSpace.run`` begins nothing else
    "cluster/followers.py self._accept": "connections/listeners.py _admit",
    "cluster/directory/readers.py self._keep": DAEMON + "it runs in the supervisor of daemons",
    "daemon/reloading.py daemon.accept_on": "connections/listeners.py _admit",
    "daemon/reloading.py daemon.parts[HOSTING].run": DAEMON + "code of actors is fenced by their engine",
    "daemon/serve.py daemon.home.note_served": DAEMON + "it notes in the store when turns began",
    "daemon/serve.py say": DAEMON + "it logs what a start waits for",
    "daemon/serve.py partial": DAEMON + "it waits for the end",
    "daemon/serve.py _keep": DAEMON + "it keeps the lock or the lease",
    "daemon/serve.py _write_log": DAEMON + "an end of the log is the end of the daemon",
    "daemon/serve.py _react": "connections/connection.py SocketReader.ready",
    "daemon/serve.py _answer": "monitoring/admin.py Admin.serve",
    "daemon/serve.py succession.run": "daemon/anew.py fence_role",  # as it begins nothing else
    "daemon/serve.py _end_when": DAEMON + "it waits for the end",
    "daemon/serve.py writer.close": DAEMON + "it writes what waits, at the end",
    "daemon/serve.py daemon.accept_on": "connections/listeners.py _admit",
    "hosting/actors.py self.run": DAEMON + "code of actors is fenced by their engine",
    "hosting/actors.py _name_late": DAEMON + "it logs the names of actors that are late",
    "hosting/guardian.py self._read_reports": DAEMON + "it runs in an actor, which its engine fences",
    "hosting/guardian.py self._await_silence": DAEMON + "it runs in an actor, which its engine fences",
    "hosting/process.py signs.give": DAEMON + "it runs in a process of an actor",
    "groups/space/reading.py _try_again": "groups/space/reading.py _try_again",
    "groups/space/topics.py read_behind": "groups/space/reading.py read_behind",
    "groups/space/topics.py read_topics": "groups/space/topics.py read_topics",
    "groups/space/topics.py feed_on": "spaces/keeping.py keep",  # a task within ``read_all``
    "groups/space/topics.py _read": "groups/space/topics.py _read",
    "spaces/rules.py _pump": "spaces/rules.py _pump",
    "topics/durable.py self._away.run": "spaces/keeping.py keep",  # a task within ``DurableTopics.run``
    "topics/durable.py self.writer.trim_aged": "spaces/keeping.py keep",
    "web/connection.py connection.run": "web/connection.py HttpConnection.run",
    "web/routes/streaming.py _watch": "web/connection.py HttpConnection.run",  # within a request
}


def _begun() -> Iterator[str]:
    """Yields the tasks that files of the daemon begin, in nurseries and by aliases of ``start_soon``."""
    for path in sorted(TOP.rglob("*.py")):
        name = path.relative_to(TOP).as_posix()
        if name.startswith(("cli/", "copies/")) or "/commands/" in name or name.endswith("command.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function, first = node.func, node.args[0]
            if isinstance(function, ast.Attribute) and function.attr in BEGINNINGS:
                task = first.func if isinstance(first, ast.Call) else first
                yield f"{name} {ast.unparse(task)}"
            elif isinstance(function, ast.Name) and ast.unparse(first).endswith(BEGINNINGS):
                yield f"{name} {ast.unparse(node.args[1])}"  # ``partial(nursery.start_soon, keep, ...)``


def test_each_task_has_a_fence_or_is_for_no_tenant() -> None:
    begun = {each for each in _begun() if each.split(" ")[1] not in FENCES}
    assert begun - OTHERS.keys() == set(), "begin these through a fence, or say what stops what they raise"
    unused = {each for each in OTHERS if each not in begun}
    assert unused == set(), "these tasks are not begun any more"


def _handles(name: str, function: str) -> bool:
    """True if a function of a file has a handler for any error, or a block that is one."""
    place: ast.AST = ast.parse((TOP / name).read_text())
    for part in function.split("."):
        place = next(each for each in ast.walk(place) if getattr(each, "name", None) == part)
    handled = [each.type for each in ast.walk(place) if isinstance(each, ast.ExceptHandler)]
    handled += [each.func for each in ast.walk(place) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Name) and each.id in ("Exception", "StepFence") for each in handled)


def test_each_fence_catches_what_a_task_raises() -> None:
    places = {each for each in OTHERS.values() if not each.startswith(DAEMON)}
    places |= {f"sessions/peer.py Peer.{each}" for each in ("_run_task", "_run_fenced")}
    places.add("daemon/anew.py fence_role")
    assert [each for each in sorted(places) if not _handles(*each.split(" "))] == []
