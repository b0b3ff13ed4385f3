"""Configuration with etcd: a transaction to compare and set, and a watch that is made again by hand.

python configuration_etcd.py set rate 7
python configuration_etcd.py set rate 8 7
python configuration_etcd.py follow
"""

import json
import sys
import time

import etcd3

PREFIX = "config/billing/"


def change(name, value, *before):
    client = etcd3.client(timeout=2)
    key, ops = PREFIX + name, client.transactions
    same = [ops.value(key) == each for each in before]
    done, found = client.transaction(same, [ops.put(key, value)], [ops.get(key)])
    if not done:
        sys.exit(f"it is {[each.decode() for each, _ in found[0]]}")
    print(client.get(key)[1].mod_revision, flush=True)


def follow():
    while True:
        try:
            client = etcd3.client(timeout=2)
            state = client.get_prefix_response(PREFIX)
            settings = {each.key.decode()[len(PREFIX) :]: json.loads(each.value) for each in state.kvs}
            print(json.dumps(settings, sort_keys=True), flush=True)
            changes, _ = client.watch_prefix(PREFIX, start_revision=state.header.revision + 1)
            for each in changes:
                name = each.key.decode()[len(PREFIX) :]
                if isinstance(each, etcd3.events.PutEvent):
                    settings[name] = json.loads(each.value)
                else:
                    settings.pop(name, None)
                print(json.dumps(settings, sort_keys=True), flush=True)
        except etcd3.exceptions.Etcd3Exception:
            time.sleep(0.5)


if __name__ == "__main__":
    {"set": change, "follow": follow}[sys.argv[1]](*sys.argv[2:])
