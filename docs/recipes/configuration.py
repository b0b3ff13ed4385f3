"""Configuration: one value for each setting, which every program has at once, and has again when it starts.

python configuration.py set rate 7     # for all, and for good
python configuration.py set rate 8 7   # only if it is still 7
python configuration.py follow         # prints all settings, whenever one changes
"""

import sys

import trio

import dataspace
from dataspace import exactly


async def change(name: str, value: str, *before: str) -> None:
    expected = [exactly(f'config("billing", "{name}", $value)', [(int(each),)]) for each in before]
    async with dataspace.connect() as space, space.turn(expect=expected) as turn:
        turn.put("config", "billing", name, int(value), owner="operations")


async def follow() -> None:
    async with dataspace.connect() as space:
        async with space.live('config("billing", $name, $value)', by="name", sort=str) as settings:
            while True:
                print({name: row.value for name, row in settings.items()}, flush=True)
                await settings.changed()


if __name__ == "__main__":
    trio.run({"set": change, "follow": follow}[sys.argv[1]], *sys.argv[2:])
