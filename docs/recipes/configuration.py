"""Configuration: one value for each setting, which every program has at once, and has again when it starts.

python configuration.py set rate 7     # for all, and for good
python configuration.py set rate 8 7   # only if it is still 7
python configuration.py follow         # prints all settings, whenever one changes
"""

import json
import sys

import trio

import dataspace
from dataspace import ExpectationFailed, exactly


async def change(name: str, value: str, *before: str) -> None:
    now = f'config("billing", {json.dumps(name)}, $value)'
    expected = [exactly(now, [(json.loads(each),)]) for each in before]
    async with dataspace.connect() as space:
        try:
            async with space.turn(expect=expected) as turn:
                turn.put("config", "billing", name, json.loads(value), owner="operations")
        except ExpectationFailed as failed:
            sys.exit(f"it is {failed.rows}")
    print(turn.epoch, flush=True)


async def follow() -> None:
    settings: dict[object, object] = {}
    async with dataspace.connect() as space:
        async with space.observe('config("billing", $name, $value)') as changes:
            async for epoch in changes.epochs():
                for name, _ in epoch.removed:
                    del settings[name]
                settings.update(dict(epoch.added))
                print(json.dumps(settings, sort_keys=True), flush=True)


if __name__ == "__main__":
    trio.run({"set": change, "follow": follow}[sys.argv[1]], *sys.argv[2:])
