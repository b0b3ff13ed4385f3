"""The registry with etcd: a key of a lease that is renewed by hand, and a watch that is resumed by hand.

python registry_etcd.py serve billing 10.0.0.1:80 2
python registry_etcd.py find billing
"""

import sys
import threading
import time

import etcd3


def serve(name, address, seconds):
    client, lease = etcd3.client(timeout=2), None
    while True:
        try:
            if lease is None or lease.refresh()[0].TTL == 0:  # it has ended: begin another one
                lease = client.lease(int(seconds))
                client.put(f"service/{name}/{address}", address, lease)
                print("serving", flush=True)
        except etcd3.exceptions.Etcd3Exception:
            pass  # the server is away: the lease may be there still
        time.sleep(int(seconds) / 3)


def find(name):
    client, prefix = etcd3.client(), f"service/{name}/"
    while True:
        changed, broken = threading.Event(), False

        def note(response, changed=changed):
            nonlocal broken
            broken |= isinstance(response, Exception)
            changed.set()

        watch = client.add_watch_prefix_callback(prefix, note)
        while not broken:  # first after the watch has begun, or a change between the two would be missed
            changed.clear()
            print(*sorted(value.decode() for value, _ in client.get_prefix(prefix)), flush=True)
            changed.wait()
        client.cancel_watch(watch)


if __name__ == "__main__":
    {"serve": serve, "find": find}[sys.argv[1]](*sys.argv[2:])
