"""Configuration: one value for each setting, which every program has at once, and has again when it starts.

python configuration.py set rate 7     # for all, and for good
python configuration.py follow         # prints all settings, whenever one changes
"""

import json
import sys

import trio

import dataspace


async def change(name: str, value: str) -> None:
    async with dataspace.connect(owner="operations", client="~operator") as space:
        print(await space.put("config", "billing", name, json.loads(value)), flush=True)


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
