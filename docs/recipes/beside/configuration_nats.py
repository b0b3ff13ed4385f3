"""Configuration with NATS: a bucket of JetStream, and a watch of it.

python configuration_nats.py set rate 7
python configuration_nats.py follow
"""

import asyncio
import json
import sys

import nats


async def bucket():
    client = await nats.connect(max_reconnect_attempts=-1)
    return client, await client.jetstream().create_key_value(bucket="config-billing")


async def change(name, value):
    client, settings = await bucket()
    print(await settings.put(name, value.encode()), flush=True)
    await client.drain()


async def follow():
    _, kept = await bucket()
    settings, is_whole = {}, False
    async for entry in await kept.watchall():
        if entry is None:  # what was there before has come
            is_whole = True
        elif entry.operation in ("DEL", "PURGE"):
            settings.pop(entry.key, None)
        else:
            settings[entry.key] = json.loads(entry.value)
        if is_whole:
            print(json.dumps(settings, sort_keys=True), flush=True)


if __name__ == "__main__":
    asyncio.run({"set": change, "follow": follow}[sys.argv[1]](*sys.argv[2:]))
