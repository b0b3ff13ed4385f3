"""A fleet of devices, and alerts of those that are silent or too hot: rules say when, and when no longer.

python fleet.py device d1 21     # a device, which reports 21 °C five times a second
python fleet.py watch            # prints the alerts, whenever they change
"""

import sys

import trio

import dataspace

RULES = """alert($device, "silent") <- device($device, "in service"), not temp($device, _) within 1 s.
alert($device, "hot", $celsius) <- temp($device, $celsius), $celsius > 90."""


async def device(me: str, celsius: str) -> None:
    async with dataspace.connect(name=me, heartbeat=1) as space:
        await space.put("device", me, "in service", owner="fleet")
        while True:
            await space.put("temp", me, float(celsius))
            await trio.sleep(0.2)


async def watch() -> None:
    async with dataspace.connect() as space:
        await space.put("rule", "alerts", RULES, owner="fleet")
        async with space.live("alert($device, $why)", by="device", many=True, sort=str) as alerts:
            while True:
                print({device: [row.why for row in rows] for device, rows in alerts.items()}, flush=True)
                await alerts.changed()


if __name__ == "__main__":
    trio.run({"device": device, "watch": watch}[sys.argv[1]], *sys.argv[2:])
