"""The commands about topics: publish, subscribe, read, list, end.

They are apart from the other commands because their unit is another one: epochs with times of their own,
not turns of a space.

Always: an epoch is printed when it is complete; an epoch that a producer left open is marked as crashed.
"""

from __future__ import annotations

import argparse

from dataspace.client.completed import CompletedEpoch
from dataspace.client.publications import Publication
from dataspace.errors import UsageError
from dataspace.foreign import tame
from dataspace.topics.epochs import TopicEpoch
from dataspace.topics.messages import Batch, Crash, Frontier
from dataspace.topics.times import Time
from dataspace.wire.features import SYSTEM
from index.patterns.text import parse, unparse
from index.values.jsons import to_json
from index.values.values import Value
from server.cli.connecting import connect, refuse_in_shell
from server.cli.lasting.run import lines
from server.cli.output import json_line, note, write
from server.config.units import duration, size


def time_of(text: str) -> Time:
    """Returns a time from the command line.

    >>> time_of("5"), time_of("[1, 2]")
    (5, (1, 2))
    """
    value = parse(text)
    if value.__class__ is int or (value.__class__ is tuple and all(each.__class__ is int for each in value)):
        return value  # type: ignore[return-value]  # just checked
    raise UsageError(f"{text!r} is no time, write for example 5, or [1, 2]")


# -- publish -----------------------------------------------------------------------------------------


async def publish(args: argparse.Namespace) -> int:
    """Publishes values, or each line of the standard input as an epoch."""
    if args.keep_for is not None and not args.durable:
        raise UsageError("--keep-for needs --durable")
    start = None if args.time is None else time_of(args.time)
    values = [parse(text) for text in args.value]
    if not values:
        refuse_in_shell(args, "topic publish without values")
    async with (
        connect(args) as space,
        space.publish(
            args.topic,
            partition=args.partition,
            partitions=args.partitions,
            dimensions=args.dimensions,
            time=start,
            retain=0 if args.retain is None else size(args.retain),
            durable=args.durable,
            age=None if args.keep_for is None else duration(args.keep_for),
            name=args.name,
            away=duration(args.away),
        ) as publication,
    ):
        if values:
            await publication.send(*values)
        else:
            await _publish_lines(publication, timed=args.times)
    return 0


async def _publish_lines(publication: Publication, *, timed: bool) -> None:
    """Sends each line at its time; this publisher is then done with the times before it."""
    async for number, line in lines():
        try:
            await _publish_line(publication, line, timed=timed)
        except UsageError as error:
            raise UsageError(f"line {number} of the standard input: {error}") from error


async def _publish_line(publication: Publication, line: str, *, timed: bool) -> None:
    if timed:
        time, text = _split(line)
        await publication.advance(time)
        await publication.send(parse(text))
    else:
        assert publication.time is not None  # it was not released
        await publication.finish(parse(line), then=publication.order.after([publication.time]))


def _split(line: str) -> tuple[Time, str]:
    """Returns the time that a line begins with, and the rest.

    >>> _split('[1, 2] reading("d1")')
    ((1, 2), 'reading("d1")')
    """
    at = line.index("]") + 1 if line.startswith("[") and "]" in line else line.find(" ")
    if at < 1:
        raise UsageError(f'a line begins with its time, such as 7 reading("d1"), got {line.strip()!r:.60}')
    return time_of(line[:at]), line[at:].strip()


# -- subscribe ---------------------------------------------------------------------------------------


async def subscribe(args: argparse.Namespace) -> int:
    """Prints epochs of a topic once they are complete."""
    async with (
        connect(args) as space,
        space.subscribe(
            args.topic,
            partitions=args.partition,
            atomic=not args.torn,
            as_of=None if args.since is None else time_of(args.since),
            up_to=None if args.until is None else time_of(args.until),
            timeout=duration(args.wait),
        ) as subscription,
    ):
        note(f"subscribed to {args.topic}, Ctrl-C ends")
        printed = 0
        async for event in subscription.events():
            for epoch in subscription.collect(event):
                _print_epoch(epoch, as_json=args.json)
                printed += 1
                if printed == args.count:
                    return 0
            _print_event(event, progress=args.progress, as_json=args.json)
        for epoch in subscription.rest():
            _print_epoch(epoch, as_json=args.json)
    return 0


def _print_epoch(epoch: TopicEpoch, *, as_json: bool) -> None:
    if as_json:
        line: dict[str, object] = {"time": epoch.time, "items": [to_json(each) for each in epoch.items]}
        if epoch.crashed:
            line["crashed"] = epoch.crashed
        write(json_line(line))
        return
    lines = [f"{unparse(epoch.time)} {unparse(each)}" for each in epoch.items]
    if epoch.crashed:
        lines.append(f"# {unparse(epoch.time)} may be incomplete: {epoch.crashed}")
    write("\n".join(lines))


def _print_event(event: Batch | Frontier | Crash, *, progress: bool, as_json: bool) -> None:
    match event:
        case Frontier(times) if progress:
            shown = ", ".join(unparse(each) for each in times) or "the end"
            write(json_line({"frontier": times}) if as_json else f"# frontier {shown}")
        case Crash(partition, since, _, reason):
            if as_json:
                line = {"crash": reason, "partition": partition, "since": since}
                write(json_line(line))
            else:
                place = ", ".join(unparse(each) for each in since)
                write(f"# partition {partition} lost a producer that was at {place}: {reason}")
        case _:
            pass


# -- read and end ------------------------------------------------------------------------------------


async def read(args: argparse.Namespace) -> int:
    """Prints completed epochs by number, the same each time."""
    async with connect(args) as space:
        async for epoch in space.completed(args.topic, after=args.after, upto=args.until):
            print_completed(epoch, as_json=args.json)
    return 0


def print_completed(epoch: CompletedEpoch, *, as_json: bool) -> None:
    """Prints one epoch of a durable topic."""
    if as_json:
        items = [to_json(each) for each in epoch.items]
        line: dict[str, object] = {"number": epoch.number, "time": epoch.time, "items": items}
        write(json_line(line | ({"crashed": epoch.crashed} if epoch.crashed else {})))
    else:
        _print_epoch(TopicEpoch(epoch.time, epoch.items, epoch.crashed), as_json=False)


async def end(args: argparse.Namespace) -> int:
    """Ends a durable topic."""
    async with connect(args) as space:
        await space.end_topic(args.topic)
    return 0


# -- list --------------------------------------------------------------------------------------------


async def list_(args: argparse.Namespace) -> int:
    """Prints the topics, with how many publishers and subscribers each has."""
    async with connect(args, space=SYSTEM) as system:
        topics = await system.matches("topic($name:str, _, $partitions, $dimensions)")
        producers = await system.matches("publication($name, $partition, $producer)")
        followers = await system.matches("subscription($name, _, $subscription)")
    for name, partitions, dimensions in sorted(topics):
        assert isinstance(name, str)  # as the pattern says
        publications = len([row for row in producers if row[0] == name])
        subscriptions = len({row[1] for row in followers if row[0] == name})
        if args.json:
            figures = {
                "topic": name,
                "partitions": partitions,
                "dimensions": dimensions,
                "publications": publications,
                "subscriptions": subscriptions,
            }
            write(json_line(figures))
        else:
            write(
                f"{tame(name):<20} {_counted(partitions, 'partition')}, {_counted(dimensions, 'dimension')},"
                f" {_counted(publications, 'publication')}, {_counted(subscriptions, 'subscription')}"
            )
    return 0


def _counted(number: Value, noun: str) -> str:
    """Returns a number with its noun.

    >>> _counted(1, "partition"), _counted(0, "partition")
    ('1 partition', '0 partitions')
    """
    return f"{number!r} {noun}" + ("" if number == 1 else "s")
