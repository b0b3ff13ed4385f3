"""The blackboard with etcd: what is wanted next is computed by each agent, from all that is there.

python blackboard_etcd.py ask 1 "Why is the sky blue?"
python blackboard_etcd.py agent ada draft 2
python blackboard_etcd.py agent bob review 2
"""

import sys
import threading
import time

import etcd3

BEFORE = {"draft": "question", "review": "draft"}


def ask(number, text):
    etcd3.client().put(f"board/question/{number}", text)


def wanted(client, skill):
    there = {
        meta.key.decode().removeprefix("board/"): value.decode()
        for value, meta in client.get_prefix("board/")
    }
    for key, text in there.items():
        kind, _, number = key.partition("/")
        if kind == BEFORE[skill] and not {f"{skill}/{number}", f"busy/{skill}/{number}"} & there.keys():
            yield number, text


def keep(lease, seconds, ended):
    while not ended.wait(seconds / 3):
        try:
            lease.refresh()
        except etcd3.exceptions.Etcd3Exception:
            pass


def contribute(client, me, skill, number, text, seconds):
    busy, note, lease, ended = (
        f"board/busy/{skill}/{number}",
        f"board/{skill}/{number}",
        client.lease(seconds),
        threading.Event(),
    )
    say = client.transactions
    free = [say.version(busy) == 0, say.version(note) == 0]
    mine = f"{me}/{lease.id}"
    if not client.transaction(free, [say.put(busy, mine, lease)], [])[0]:
        return
    print("busy", number, flush=True)
    threading.Thread(target=keep, args=(lease, seconds, ended), daemon=True).start()
    time.sleep(0.2)  # the agent thinks
    ended.set()
    held = [say.value(busy) == mine, say.version(note) == 0]
    if not client.transaction(held, [say.put(note, f"{skill} of {text}"), say.delete(busy)], [])[0]:
        print("not mine", number, flush=True)


def agent(me, skill, seconds):
    client = etcd3.client(timeout=2)
    while True:
        try:
            changed = threading.Event()
            watch = client.add_watch_prefix_callback(
                "board/", lambda response, changed=changed: changed.set()
            )
            while True:
                changed.clear()
                for number, text in [*wanted(client, skill)]:
                    contribute(client, me, skill, number, text, int(seconds))
                changed.wait(5)  # a watch that was broken is silent
        except etcd3.exceptions.Etcd3Exception:
            client.cancel_watch(watch)
            time.sleep(1)


if __name__ == "__main__":
    {"ask": ask, "agent": agent}[sys.argv[1]](*sys.argv[2:])
