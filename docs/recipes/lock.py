"""A lock with a store that looks at its tokens: no entry is lost, none is written by a holder that came late.

python lock.py book.sqlite worker-1 2     # adds entries, each the one before and 1; a lock lasts 2 s
"""

import sqlite3
import sys

import trio

import dataspace
from dataspace import LockLost

BOOK = "CREATE TABLE IF NOT EXISTS book (value INTEGER, token INTEGER, who TEXT)"
SEEN = "CREATE TABLE IF NOT EXISTS seen (token INTEGER)"
APPEND = "INSERT INTO book SELECT ?, ?, ? WHERE ? >= (SELECT max(token) FROM seen)"


async def main(path: str, me: str, seconds: str) -> None:
    book = sqlite3.connect(path, isolation_level=None, timeout=60)
    book.execute(BOOK), book.execute(SEEN)
    async with dataspace.connect(name=me, heartbeat=1) as space:
        while True:
            try:
                async with space.lock("book", me, ttl=float(seconds)) as lock:
                    book.execute("INSERT INTO seen VALUES (?)", (lock.token,))  # before anything is read
                    (last,) = book.execute("SELECT coalesce(max(value), 0) FROM book").fetchone()
                    await trio.sleep(0.05)  # the work, in which the process may be stopped
                    lock.check()
                    done = book.execute(APPEND, (last + 1, lock.token, me, lock.token)).rowcount
                print("wrote" if done else "refused", last + 1, lock.token, flush=True)
            except LockLost:
                print("lost", flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
