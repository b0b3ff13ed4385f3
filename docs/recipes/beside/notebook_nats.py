"""The notebook with NATS: readings are entries of a bucket; who looks at what must be renewed by a task."""

# %% connect once
import asyncio
import json

import nats

client = await nats.connect(max_reconnect_attempts=-1)
stream = client.jetstream()
kept = await stream.create_key_value(bucket="reading")
looking = await stream.create_key_value(bucket="looking-at", ttl=2)

# %% state something, which others see as long as the notebook is connected


async def renew():
    while True:
        try:
            await looking.put("notebook", b"sales")
        except (nats.errors.Error, asyncio.TimeoutError):
            pass
        await asyncio.sleep(0.5)


renewing = asyncio.create_task(renew())

# %% look at what is there now
try:
    print(sorted([(key, json.loads((await kept.get(key)).value)) for key in await kept.keys()]))
except nats.js.errors.NoKeysError:
    print([])

# %% read on where the last cell has stopped
readings = await kept.watchall()
print(await anext(aiter(readings)))

# %% run this cell again for the next one; interrupt it if none comes
entry = None
while entry is None:
    entry = await anext(aiter(readings))
print(entry.key, json.loads(entry.value) if entry.value else None)

# %% the end
renewing.cancel()
await looking.delete("notebook")
await client.drain()
