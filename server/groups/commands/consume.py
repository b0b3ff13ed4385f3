"""The command consume: a member of a group, which prints its jobs or runs a command for each."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from dataspace.client.jobs import Job, Jobs
from dataspace.client.reports import KeyOrder
from dataspace.client.space import RemoteSpace
from dataspace.errors import DeliveryLost, UsageError
from dataspace.facts import as_it_is
from dataspace.kernel.changes import EpochChanges
from index.values.values import Value
from server.cli.connecting import connect
from server.cli.lasting.facts import environment
from server.cli.output import change_json, note, print_epoch, say
from server.cli.values import content, parsed, value_in
from server.config.units import duration
from server.groups.commands.waits import waits

AGAIN: Final = 75
"""The status of a command whose job is to be tried again without blame (EX_TEMPFAIL)."""


async def consume(args: argparse.Namespace) -> int:
    """Takes jobs of a group until interrupted, or until ``--count`` of them."""
    if args.results and not args.execute:
        raise UsageError("--results: what a command prints becomes facts, so it needs --exec COMMAND")
    pattern = None if args.pattern is None else parsed(args.pattern)
    async with (
        connect(args) as space,
        space.consume(
            pattern,
            group=args.group,
            start=args.start,
            in_flight=args.in_flight,
            key=args.key,
            ack_within=duration(args.ack_within) if args.ack_within else None,
            attempts=args.attempts,
            topic=args.topic,
            most_out=args.most_out,
            backoff=None if args.backoff is None else waits(args.backoff),
            rate=args.rate,
            exclusive=args.exclusive,
            kinds=args.kinds,
            priority=args.priority,
        ) as jobs,
    ):
        note(f"group {args.group}: waiting for jobs, Ctrl-C ends")
        left = args.count if args.count is not None else math.inf
        order, undone = await jobs.key_order() if args.execute else None, trio.Event()
        async with trio.open_nursery() as nursery:
            slots = trio.CapacityLimiter(args.in_flight)
            while left > 0 and (job := await jobs.next_job()) is not None:
                left -= 1
                if order is None:
                    print_epoch(_epoch_of(job), as_json=args.json)
                    await job.done()
                    continue
                order.add(job)
                await slots.acquire_on_behalf_of(job)
                nursery.start_soon(_work, job, partial(_run, space, jobs, args), order, slots, undone)
    return int(undone.is_set() and args.count is not None)


async def _work(
    job: Job,
    run: Callable[[Job], Awaitable[bool]],
    order: KeyOrder,
    slots: trio.CapacityLimiter,
    undone: trio.Event,
) -> None:
    """Runs the command for one job, and settles the job by its exit status; notes if it is not done."""
    is_done = False
    try:
        with suppress(DeliveryLost):
            async with order.turn(job):
                is_done = await run(job)
    finally:
        if not is_done:
            undone.set()
        slots.release_on_behalf_of(job)


async def _run(space: RemoteSpace, jobs: Jobs, args: argparse.Namespace, job: Job) -> bool:
    """Runs the command for one job, and settles that; returns whether the job is done."""
    epoch = _epoch_of(job)
    (change,) = epoch
    variables = environment(change) | {
        "DATASPACE_JOB": f"{job.epoch}.{job.position}",
        "DATASPACE_ATTEMPT": str(job.attempt),
        "DATASPACE_TOKEN": str(job.token),
    }
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_extend, jobs, job)
            ended = await trio.run_process(
                ["/bin/sh", "-c", args.execute],
                stdin=(change_json(change, epoch) + "\n").encode(),
                capture_stdout=bool(args.results),
                check=False,
                env=os.environ | variables,
            )
            nursery.cancel_scope.cancel()
        if ended.returncode:
            await _failed(job, ended.returncode, args.execute)
            return False
        facts = _facts(ended.stdout) if args.results else []
    except (OSError, subprocess.SubprocessError, UsageError) as error:
        say(f"dataspace: job {job.epoch}.{job.position}: {error}")
        await job.again(reason=str(error))
        return False
    async with space.turn(done=[job]) as turn:
        for fact in facts:
            turn.assert_(as_it_is(fact), owner=args.results)
    return True


async def _failed(job: Job, status: int, command: str) -> None:
    say(f"dataspace: {command} ended with {status} for job {job.epoch}.{job.position}, attempt {job.attempt}")
    await job.again(blame=status != AGAIN, reason=f"status {status}")


async def _extend(jobs: Jobs, job: Job) -> None:
    """Begins the deadline of a job anew for as long as its command runs."""
    with suppress(DeliveryLost):
        while True:
            await trio.sleep(jobs.ack_within / 3)
            await job.extend()


def _facts(printed: bytes) -> list[Value]:
    """Returns the facts that a command has printed, one on a line."""
    try:
        lines = printed.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"facts in UTF-8 are needed, and byte {error.start} that was printed is none"
        ) from None
    return [value_in(number, content(line)) for number, line in enumerate(lines, 1) if content(line)]


def _epoch_of(job: Job) -> EpochChanges:
    """Returns a job as the change that it is."""
    rows, names = [job.captures], tuple(job.named)
    is_fact = not (job.is_message or job.is_ending)
    came, sent, went = [rows if one else [] for one in (is_fact, job.is_message, job.is_ending)]
    return EpochChanges(job.epoch, job.micros, job.epoch, names, came, sent, went)
