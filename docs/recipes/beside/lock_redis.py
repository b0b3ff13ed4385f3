"""The lock with Redis: redis-py has the lock; the token is a counter of one's own.

Redis loses what it has not written when it is killed (`appendfsync everysec`), and a replica that takes over
may lack the lock, the counter, or both.

    python lock_redis.py book.sqlite worker-1 2
"""

import sqlite3
import sys
import threading
import time

import redis
from redis.exceptions import LockError

BOOK = "CREATE TABLE IF NOT EXISTS book (value INTEGER, token INTEGER, who TEXT)"
SEEN = "CREATE TABLE IF NOT EXISTS seen (token INTEGER)"
APPEND = "INSERT INTO book SELECT ?, ?, ? WHERE ? >= (SELECT max(token) FROM seen)"


def keep(lock, seconds, ended):
    while not ended.wait(seconds / 4):
        try:
            lock.reacquire()
        except LockError:
            return


def main(path, me, seconds):
    book = sqlite3.connect(path, isolation_level=None, timeout=60)
    book.execute(BOOK), book.execute(SEEN)
    server = redis.Redis()
    while True:
        lock, ended = server.lock("book", timeout=float(seconds), thread_local=False), threading.Event()
        try:
            with lock:
                token = server.incr("book:token")  # after the lock: a pause between them gives a high token
                threading.Thread(target=keep, args=(lock, float(seconds), ended), daemon=True).start()
                book.execute("INSERT INTO seen VALUES (?)", (token,))  # before anything is read
                (last,) = book.execute("SELECT coalesce(max(value), 0) FROM book").fetchone()
                time.sleep(0.05)  # the work
                if not lock.owned():
                    raise LockError("lost")
                done = book.execute(APPEND, (last + 1, token, me, token)).rowcount
                ended.set()
            print("wrote" if done else "refused", last + 1, token, flush=True)
        except LockError:
            ended.set()
            print("lost", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
