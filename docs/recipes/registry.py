"""A service registry: which instances of a service are alive, and where.

python registry.py serve billing 10.0.0.1:80 2     # an instance, out of the registry 2 s after it was killed
python registry.py find billing                    # prints the addresses, whenever they change
"""

import sys

import trio

import dataspace
from dataspace import Record


async def serve(name: str, address: str, seconds: str) -> None:
    async with dataspace.connect(name=address, lease=float(seconds)) as space:
        await space.assert_(Record("service", name, address))
        print("serving", flush=True)
        await trio.sleep_forever()


async def find(name: str) -> None:
    async with dataspace.connect() as space:
        async with space.live(f'service("{name}", $address)', by="address", sort=str) as services:
            while True:
                print(*services, flush=True)
                await services.changed()


if __name__ == "__main__":
    trio.run({"serve": serve, "find": find}[sys.argv[1]], *sys.argv[2:])
