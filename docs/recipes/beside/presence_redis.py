"""Presence with Redis: a key that is set again and again, and a set that is read again and again.

Keys that expire are announced by keyspace notifications, which are lost while a client is not connected: so
the keys are read once a second as well.

    python presence_redis.py Alice 1
"""

import sys
import threading
import time

import redis


def beat(server, me, seconds):
    while True:
        try:
            if server.set(f"present:{me}", 1, px=int(2000 * seconds), get=True) is None:
                server.publish("presence", me)
        except redis.ConnectionError:
            pass
        time.sleep(seconds)


def main(me, heartbeat):
    server, there = redis.Redis(decode_responses=True), set()
    server.config_set("notify-keyspace-events", "Kx")
    threading.Thread(target=beat, args=(server, me, float(heartbeat)), daemon=True).start()
    while True:
        try:
            events = server.pubsub(ignore_subscribe_messages=True)
            events.psubscribe("presence", "__keyspace@0__:present:*")
            while True:
                now = {key.removeprefix("present:") for key in server.scan_iter("present:*")}
                for who in now - there:
                    print("+", who, flush=True)
                for who in there - now:
                    print("-", who, flush=True)
                there = now
                events.get_message(timeout=1)
        except redis.ConnectionError:
            time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
