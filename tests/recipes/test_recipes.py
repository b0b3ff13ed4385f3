"""Each recipe keeps its promise while its programs are killed and stopped in the middle.

The quick form of each has every fault once; the long ones go on for as many rounds as ``TORTURE_ROUNDS``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Final

import pytest

from dataspace import BlockingSpace, Record
from tests.model.locks import Belief, Grant, LockHistory, lock_violations
from tests.recipes.programs import RECIPES, Program, Stage

TTL: Final = 0.6
"""Seconds of a lease here: long enough that a process on a busy machine renews it in time."""

MOST_LINES: Final = 30

FIRST: Final = (
    "registry",
    "work_queue",
    "election",
    "flags.html",
    "chat",
    "fleet",
    "report",
    "worker_node.mjs",
    "worker_curl.sh",
)
"""The programs with which most people begin; they have ``MOST_OF_FIRST`` lines at most."""

MOST_OF_FIRST: Final = 20

NAMES: Final = (
    "registry",
    "election",
    "lock",
    "configuration",
    "presence",
    "chat",
    "work_queue",
    "worker_node.mjs",
    "worker_curl.sh",
    "fleet",
    "blackboard",
    "notebook",
    "web_page",
)

ELSEWHERE: Final = {
    "fastapi_presence": "browser/test_fastapi.py",
    "flags.html": "browser/test_flags.py",
    "report": "recipes/test_report.py",
}
"""The tests of recipes that need more than the project's own environment, or Spark."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One daemon for all: the recipes have facts of their own."""
    made = Stage(tmp_path_factory.mktemp("recipes"))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    """The stage, without programs of another test."""
    try:
        yield shared
    finally:
        shared.clear()


def registry(stage: Stage, n: int) -> None:
    """A killed instance is out, a stopped one is out until it goes on, others stay."""
    finder = stage.start("registry", "find", f"s{n}")
    one = stage.start("registry", "serve", f"s{n}", "a:1", TTL)
    two = stage.start("registry", "serve", f"s{n}", "b:2", TTL)
    finder.until("a:1 b:2")
    one.kill()
    finder.until(lambda line: line == "b:2")
    two.stop()
    finder.until(lambda line: line == "")
    two.go_on()
    finder.until(lambda line: line == "b:2")


def election(stage: Stage, n: int) -> None:
    """One leads at a time: a leader that was stopped does no step after the next one has begun."""
    names = [f"{each}{n}" for each in ("one", "two")]
    with stage.connect() as space:
        begun = space.sync()
        one = stage.start("election", names[0], TTL)
        first = one.until("leading")
        two = stage.start("election", names[1], TTL)
        space.first(f'contender("billing", "{names[1]}", _)', timeout=30)
        one.stop()
        second = two.until("leading")
        one.go_on()
        one.until("lost")
        two.until("step")
        two.kill()
        third = one.until("leading")
        one.until("step")
        one.kill()
        _until_gone(space, 'leader("billing", $who)')
        with space.observe('leader("billing", $who)', after=begun, upto=space.sync()) as leaders:
            changes = [(change.kind, change.who, change.epoch) for change in leaders]
    tokens = [int(line.split()[1]) for line in (first, second, third)]
    assert tokens == sorted(set(tokens))
    assert _alternate([kind for kind, _, _ in changes])
    *_, last, end = changes
    assert last == ("+", names[0], tokens[2]) and end[:2] == ("-", names[0])
    assert lock_violations(_history({names[0]: one, names[1]: two})) == []


def _alternate(kinds: list[str]) -> bool:
    return kinds == ["+", "-"] * (len(kinds) // 2)


def _history(programs: dict[str, Program]) -> LockHistory:
    history = LockHistory()
    for name, program in programs.items():
        for line in program.read_all():
            match line.split():
                case ["leading", token, at]:
                    history.grants.append(Grant(name, int(token), 0.0, float(at)))
                case ["step", token, at]:
                    history.beliefs.append(Belief(name, int(token), float(at)))
    return history


def lock(stage: Stage, n: int) -> None:
    """The book has every entry once, in order, and all that a program has said it wrote.

    Each fault comes between the look of a holder at its lock and its entry.
    """
    path = stage.folder / f"book-{n}.sqlite"
    programs = {name: stage.start("lock", path, name, TTL) for name in [f"{each}{n}" for each in "abcd"]}
    for each in programs.values():
        each.until("wrote")
    with stage.connect() as space, closing(sqlite3.connect(path, isolation_level=None)) as book:
        late, following, _ = _late_holders(space, book, 3)
        programs[following].stop()  # had it read the book already, it would add what the late one adds
        _go_on(book, programs[late])
        programs[late].until(lambda line: line == "lost" or line.startswith("wrote"))
        programs[following].go_on()
        programs[following].until("wrote")
        late, following = _late_holders(space, book, 2)
        programs[late].stop()
        _go_on(book, programs[following])
        programs[following].until("wrote")
        programs[late].go_on()
        programs[late].until("lost")
        programs[late].until("wrote")
        late, following = _late_holders(space, book, 2)
        programs[late].kill()
        _go_on(book, programs[following])
        programs[following].until("wrote")
        for each in programs.values():
            each.kill()
        rows = book.execute("SELECT value, token, who FROM book ORDER BY rowid").fetchall()
    assert [value for value, _, _ in rows] == list(range(1, len(rows) + 1))
    assert [token for _, token, _ in rows] == sorted(token for _, token, _ in rows)
    said = {
        (int(value), int(token), name)
        for name, each in programs.items()
        for word, value, token in [line.split() for line in each.lines if line != "lost"]
        if word == "wrote"
    }
    assert said <= set(rows) and len(rows) - len(said) <= len(programs)


def _late_holders(space: BlockingSpace, book: sqlite3.Connection, count: int) -> list[str]:
    """Returns so many holders in their order, each but the last too late for its lock.

    A write of the test's own keeps them from writing: a holder that waits for the book does not renew its
    lease, so that the next one gets the lock.  The first has looked at its lock before, since the book has
    seen its token and has no entry of it.
    """
    while True:
        book.execute("BEGIN IMMEDIATE")
        (token,) = book.execute("SELECT max(token) FROM seen").fetchone()
        is_late = not book.execute("SELECT 1 FROM book WHERE token = ?", (token,)).fetchall()
        if is_late and space.matches('lock("book", _, _)'):
            break
        book.execute("ROLLBACK")
    holders: list[str] = []
    with space.observe('lock("book", $who, _)') as changes:
        for change in changes:
            if change.kind == "+":
                holders.append(str(change.captures[0]))
            if len(holders) == count:
                return holders
    raise AssertionError("the observation has ended")


def _go_on(book: sqlite3.Connection, program: Program) -> None:
    """Lets programs write again; what one says is read from here on."""
    program.read_all()
    book.execute("COMMIT")


def _stop_while(space: BlockingSpace, program: Program, pattern: str) -> None:
    """Stops a program while a fact of its own stands."""
    while True:
        space.first(pattern, timeout=30)
        program.stop()
        if space.matches(pattern):
            return
        program.go_on()


def configuration(stage: Stage, n: int) -> None:
    """A stopped follower has the newest values afterwards, though the daemon was killed; so has a new one."""
    stage.run("configuration", "set", "rate", n)
    follower = stage.start("configuration", "follow")
    follower.until(lambda line: ast.literal_eval(line)["rate"] == n)
    follower.stop()
    stage.run("configuration", "set", "rate", n + 100)
    stage.run("configuration", "set", "limit", n)
    stage.daemon.kill()
    stage.daemon.start()
    newest = str({"limit": n, "rate": n + 100})
    assert stage.start("configuration", "follow").until(newest)
    follower.go_on()
    assert follower.until(newest)
    assert all("rate" in ast.literal_eval(line) for line in follower.lines), "a value in every epoch"
    for rate in (n + 101, n + 102):  # the second comes too late
        stage.run("configuration", "set", "rate", rate, n + 100)
    stage.run("configuration", "set", "limit", n + 1)
    assert follower.until(str({"limit": n + 1, "rate": n + 101}))


def presence(stage: Stage, n: int) -> None:
    """A killed one is seen to leave at once, a stopped one after two heartbeats, and then to come back."""
    here = stage.start("presence", f"a{n}", 0.3)
    other = stage.start("presence", f"b{n}", 0.3)
    other.until(f"+ a{n}")
    here.until(f"+ b{n}")
    other.kill()
    here.until(f"- b{n}")
    third = stage.start("presence", f"c{n}", 0.3)
    here.until(f"+ c{n}")
    third.stop()
    here.until(f"- c{n}")
    third.go_on()
    here.until(f"+ c{n}")


def chat(stage: Stage, n: int) -> None:
    """What is said is heard once by all, and a killed or stopped one is seen to leave."""
    ann, ben = [stage.start("chat", f"{who}{n}", is_typed=True) for who in ("ann", "ben")]
    ann.until(f"+ ben{n}")
    ben.until(f"+ ann{n}")
    ann.type("good morning")
    for each in (ann, ben):
        each.until(f"! ann{n} good morning")
    ben.stop()
    ann.until(f"- ben{n}")
    ben.go_on()
    ann.until(f"+ ben{n}")
    ann.type("back?")
    ben.until(f"! ann{n} back?")
    ben.kill()
    ann.until(f"- ben{n}")
    assert ann.lines.count(f"! ann{n} good morning") == 1


def work_queue(stage: Stage, n: int) -> None:
    """Each task has its one result, though one worker was killed and one stopped while they worked."""
    _work(stage, n, [("work_queue", "work"), ("work_queue", "work")])


def worker_in_javascript(stage: Stage, n: int) -> None:
    """The same with a worker under Node, which is killed, and one that is stopped."""
    node = ("worker_node.mjs", f"ws://{stage.web}/ws")
    _work(stage, 1000 + n, [node, node])


def worker_in_shell(stage: Stage, n: int) -> None:
    """The same with a worker that is curl: a job of it comes again once its time is over."""
    curl = ("worker_curl.sh", f"http://{stage.web}")
    _work(stage, 2000 + n, [curl, ("work_queue", "work")])


def _work(stage: Stage, n: int, workers: list[tuple[str, str]]) -> None:
    """Has two workers killed and stopped amid a task each, and a third one do all."""
    tasks = range(100 * n, 100 * n + 3)
    (killed, *killed_words), (stopped, *stopped_words) = workers
    one = stage.start(killed, *killed_words, f"one{n}", 600)
    stage.run("work_queue", "put", tasks[0], tasks[0], 7)
    one.until("doing")
    one.kill()
    two = stage.start(stopped, *stopped_words, f"two{n}", 1)
    two.until("doing")
    two.stop()
    stage.start("work_queue", "work", f"three{n}", 0.1)
    for each in tasks[1:]:
        stage.run("work_queue", "put", each, each, 7)
    with stage.connect() as space:
        for each in tasks:
            assert space.first(f"done({each}, $result, $who)", timeout=60) == (each * 7, f"three{n}")
        two.go_on()
        two.until("not mine")
        done = [row for row in space.matches("done($, $, _)") if row[0] in tasks]
        assert sorted(map(str, done)) == [str((each, each * 7)) for each in tasks]
        assert len(space.matches(f"done({tasks[0]}, _, $who)")) == 1


def fleet(stage: Stage, n: int) -> None:
    """A killed or stopped device is silent, until it goes on; one that is too hot is hot."""
    watch = stage.start("fleet", "watch")
    watch.until("{}")
    one = stage.start("fleet", "device", f"a{n}", 95)
    watch.until(str({f"a{n}": ["hot"]}))
    two = stage.start("fleet", "device", f"b{n}", 20)
    with stage.connect() as space:
        space.first(f'temp("b{n}", _)', timeout=30)
    two.stop()
    watch.until(str({f"a{n}": ["hot"], f"b{n}": ["silent"]}))
    two.go_on()
    watch.until(str({f"a{n}": ["hot"]}))
    one.kill()
    watch.until(str({f"a{n}": ["silent"]}))
    with stage.connect(owner="fleet") as space:
        space.withdraw("device($device, _)")
    watch.until("{}")


def blackboard(stage: Stage, n: int) -> None:
    """Each question has one draft and one review of it, though agents were killed and stopped."""
    questions = range(10 * n, 10 * n + 2)
    ada = stage.start("blackboard", "agent", f"ada{n}", "draft", TTL)
    with stage.connect() as space:
        stage.run("blackboard", "ask", questions[0], f"text {questions[0]}")
        _stop_while(space, ada, f'busy($question, "draft", "ada{n}")')
        ada.kill()
        stage.start("blackboard", "agent", f"eve{n}", "draft", TTL)
        bob = stage.start("blackboard", "agent", f"bob{n}", "review", TTL)
        _stop_while(space, bob, f'busy($question, "review", "bob{n}")')
        stage.start("blackboard", "agent", f"carl{n}", "review", TTL)
        stage.run("blackboard", "ask", questions[1], f"text {questions[1]}")
        for each in questions:
            reviewed = (f"carl{n}", f"review of draft of text {each}")
            assert space.first(f'note({each}, "review", $who, $text)', timeout=30) == reviewed
        bob.go_on()
        bob.until("not mine")
        notes = [row[:3] for row in space.matches("note($, $, $, _)") if row[0] in questions]
        assert sorted(map(str, notes)) == [
            str((each, skill, who))
            for each in questions
            for skill, who in (("draft", f"eve{n}"), ("review", f"carl{n}"))
        ]


def notebook(stage: Stage, n: int) -> None:
    """One connection serves all cells, over a pause, an interruption and a restart of the daemon."""
    pipe = stage.folder / f"cells-{n}"
    os.mkfifo(pipe)
    kernel = stage.start("cells", RECIPES / "notebook.py", pipe)
    with pipe.open("w", buffering=1) as commands, stage.connect() as space:

        def run(cell: int) -> None:
            commands.write(f"{cell}\n")

        reading = space.assert_(Record("reading", "a", n))
        for cell in (1, 2, 3, 4):
            run(cell)
            kernel.until(f"ran {cell}")
        assert f"[('a', {n})]" in kernel.lines
        kernel.stop()
        space.retract(reading)
        kernel.go_on()
        run(5)
        kernel.until("ran 5")
        run(5)
        space.first("Observe(reading(_, _))", timeout=30)
        commands.write("interrupt\n")
        kernel.until("interrupted")
        if n:  # not in the quick form, where the daemon has been restarted before
            stage.daemon.kill()
            stage.daemon.start()
        run(5)
        space.assert_(Record("reading", "b", n))
        kernel.until(lambda line: "'b'" in line)
        space.first('looking-at("sales")', timeout=30)
        kernel.kill()
        _until_gone(space, "looking-at($what)")


def _until_gone(space: BlockingSpace, pattern: str) -> None:
    with space.observe(pattern) as changes:
        for change in changes:
            if change.kind == "-":
                return


class Browser:
    """Somebody who looks at the page: one request, whose body is read event by event."""

    def __init__(self, server: Program, who: str) -> None:
        port = int(server.until("port").split()[1]) if not server.lines else int(server.lines[0].split()[1])
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.sendall(f"GET /presence?who={who} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        self._file: IO[bytes] = self._socket.makefile("rb")

    def until(self, names: list[str]) -> None:
        """Reads until the page shows these names."""
        wanted = f"data: {json.dumps(names)}\n".encode()
        while (line := self._file.readline()) != wanted:
            assert line, f"the page ended before it showed {names}"

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def web_page(stage: Stage, n: int) -> None:
    """All web processes show the same; closed pages are gone, and those of a stopped or killed process."""
    one, two = [stage.start("serving", RECIPES / "web_page.py") for _ in range(2)]
    alice, bob, eve = Browser(one, "Alice"), Browser(two, "Bob"), Browser(one, "Eve")
    alice.until(["Alice", "Bob", "Eve"])
    eve.close()
    alice.until(["Alice", "Bob"])
    two.stop()
    alice.until(["Alice"])
    two.go_on()
    alice.until(["Alice", "Bob"])
    two.kill()
    alice.until(["Alice"])
    bob.close()
    alice.close()


SCENES: Final[dict[str, Callable[[Stage, int], None]]] = {
    "registry": registry,
    "election": election,
    "lock": lock,
    "configuration": configuration,
    "presence": presence,
    "chat": chat,
    "work_queue": work_queue,
    "worker_node.mjs": worker_in_javascript,
    "worker_curl.sh": worker_in_shell,
    "fleet": fleet,
    "blackboard": blackboard,
    "notebook": notebook,
    "web_page": web_page,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_keeps_its_promise(name: str, stage: Stage) -> None:
    SCENES[name](stage, 0)


@pytest.mark.torture(long=True)
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_keeps_its_promise_for_long(name: str, stage: Stage) -> None:
    for n in range(1, 1 + int(os.environ["TORTURE_ROUNDS"])):
        SCENES[name](stage, n)
        stage.clear()


COMMENTS: Final = {".mjs": "//", ".sh": "#", ".html": "<!--"}


def lines_of_code(path: Path) -> int:
    """Returns the lines that a user writes: all but blank ones, comments and the text at the top."""
    text = path.read_text(encoding="utf-8")
    lines, comment = text.splitlines(), COMMENTS.get(path.suffix, "#")
    if path.suffix == ".py":
        tree = compile(text, str(path), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        top = tree.body[0]
        assert isinstance(top, ast.Expr), f"{path} has no text at its top"
        lines = lines[top.end_lineno :]
    return len([line for line in lines if line.strip() and not line.lstrip().startswith(comment)])


def recipes() -> list[Path]:
    return [path for path in RECIPES.iterdir() if path.suffix in (".py", *COMMENTS)]


def test_each_recipe_is_short_and_none_is_without_a_scene() -> None:
    counts = {path.name.removesuffix(".py"): lines_of_code(path) for path in recipes()}
    assert set(counts) == {*NAMES, *ELSEWHERE} and set(NAMES) == set(SCENES)
    for name, test in ELSEWHERE.items():
        assert name in (RECIPES.parents[1] / "tests" / test).read_text(encoding="utf-8")
    assert {name: count for name, count in counts.items() if count > MOST_LINES} == {}
    assert {name: counts[name] for name in FIRST if counts[name] > MOST_OF_FIRST} == {}


def test_the_page_has_the_lines_of_each_recipe_and_of_the_one_beside_it() -> None:
    page = (RECIPES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[\w+\]\((\S+)\) \| (\d+) \|(?: \[\w+\]\((\S+)\) \| (\d+))?", page, re.MULTILINE)
    told = {name: int(count) for row in rows for name, count in (row[:2], row[2:]) if name}
    files = [*recipes(), *RECIPES.glob("beside/*.py")]
    assert told == {str(path.relative_to(RECIPES)): lines_of_code(path) for path in files}
