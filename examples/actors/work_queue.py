"""Queue with credit and crashing workers: a task is done once somebody says so; who crashes gives it back."""

from __future__ import annotations

from dataspace.actors import Field, Turn, record
from dataspace.actors.supervision import supervise
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Ready = record("ready", "worker", "credit")
Assigned = record("assigned", "worker", "task", "attempt")
Done = record("done", "task")


def main(turn: Turn) -> None:
    """Five tasks, two workers; one of them cannot bear the third at first."""
    turn.spawn(queue, 5)
    for name in ("ann", "ben"):
        turn.spawn(
            lambda turn, name=name: supervise(turn, worker, name, name=name), name=f"{name}-supervisor"
        )


def queue(turn: Turn, tasks: int) -> None:
    """Gives each worker as much as it has credit for."""
    waiting = turn.field("waiting", tuple(range(1, tasks + 1)))
    done = turn.field("done", 0)
    attempts: dict[int, int] = {}

    @turn.during(Ready(capture(), capture()))
    def present(turn: Turn, name: str, credit: int) -> None:
        busy: Field[tuple[int, ...]] = turn.field("busy", ())

        def give() -> None:
            if waiting.value and len(busy.value) < credit:
                task, waiting.value = waiting.value[0], waiting.value[1:]
                busy.value = (*busy.value, task)
                attempts[task] = attempts.get(task, 0) + 1
                turn.react(assigned, task)

        def assigned(turn: Turn, task: int) -> None:
            turn.assert_(Assigned(name, task, attempts[task]))

            @turn.on_message(Done(task))
            def finished(turn: Turn) -> None:
                tell(turn, f"task {task} done")
                done.value += 1
                busy.value = tuple([each for each in busy.value if each != task])
                turn.stop()

        def take_back(turn: Turn) -> None:
            waiting.value = (*busy.value, *waiting.value)

        turn.dataflow(give)
        turn.on_stop(take_back)

    turn.when_true(lambda: done.value == tasks, lambda turn: tell(turn, "all done"))


def worker(turn: Turn, name: str) -> None:
    """Does what it is given, one a second."""
    turn.assert_(Ready(name, 1))

    @turn.on_asserted(Assigned(name, capture(), capture()))
    def work(turn: Turn, task: int, attempt: int) -> None:
        @turn.after(1)
        def finish(turn: Turn) -> None:
            if task == 3 and attempt == 1:
                raise RuntimeError(f"{name} broke at task 3")
            turn.send(Done(task))


if __name__ == "__main__":
    play(main)
