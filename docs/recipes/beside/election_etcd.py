"""The election with etcd: a key that is made if it is not there, a lease, and a clock to know when to stop.

python election_etcd.py stand worker-1 2
python election_etcd.py follow
"""

import sys
import threading
import time

import etcd3

KEY = "leader/billing"


def stand(me, seconds):
    client = etcd3.client(timeout=1)
    while True:
        sent = time.monotonic()
        lease = client.lease(int(seconds))
        free = [client.transactions.version(KEY) == 0]
        won, _ = client.transaction(free, [client.transactions.put(KEY, me, lease)], [])
        if not won:
            lease.revoke()
            gone = threading.Event()
            watch = client.add_watch_callback(KEY, lambda response, gone=gone: gone.set())
            if client.get(KEY)[0] is not None:
                gone.wait()
            client.cancel_watch(watch)
            continue
        token = client.get(KEY)[1].create_revision  # who reads it after the end of the lease reads another's
        print("leading", token, time.monotonic(), flush=True)
        while (now := time.monotonic()) < sent + 0.8 * int(seconds):
            print("step", token, now, flush=True)
            time.sleep(0.05)
            if now > sent + int(seconds) / 4:
                try:
                    before = time.monotonic()
                    if lease.refresh()[0].TTL > 0:
                        sent = before
                except etcd3.exceptions.Etcd3Exception:
                    pass
        print("lost", flush=True)


def follow():
    events, _ = etcd3.client().watch(KEY)
    for event in events:
        kind = "+" if isinstance(event, etcd3.events.PutEvent) else "-"
        print(kind, event.value.decode(), event.mod_revision, flush=True)


if __name__ == "__main__":
    {"stand": stand, "follow": follow}[sys.argv[1]](*sys.argv[2:])
