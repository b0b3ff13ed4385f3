"""Drives the Python client under asyncio: a command on each line of stdin, an event on each of stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.conformance.python_verbs import PythonVerbs


async def main() -> None:
    """Carries out commands until there are no more."""

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    verbs = PythonVerbs(tell)
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        command = json.loads(line)
        if command == {"do": "forget"}:
            verbs.end()
            verbs = PythonVerbs(tell)
            tell({"of": "forget", "done": True})
            continue
        going = verbs.begin(command, asyncio.Event)
        if going is not None:
            task = asyncio.create_task(verbs.report(command, going))
            tasks.add(task)  # asyncio itself keeps only weak references
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)  # what it sends goes out before that of the next one


if __name__ == "__main__":
    asyncio.run(main())
