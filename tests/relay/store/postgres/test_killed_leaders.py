"""Leaders are killed, or stopped and woken after their term: what they were told is there is there, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from random import Random

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.postgres import members
from tests.relay.store.postgres.leaders import leaders, numbers, write

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_leader_was_told_is_there_and_a_later_term_is_all_there_is_then(
    postgres_url: str, sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "LOCK_SECONDS", 60.0)  # none of these statements holds it up
    random, held = Random(3), set[int]()
    for _ in range(3 * ROUNDS):
        command = [sys.executable, "-m", "tests.relay.store.postgres.leaders", postgres_url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == "leads\n"
                told = [int(child.stdout.readline()) for _ in range(random.randrange(1, 80))]
                child.send_signal(sent)
                with leaders(postgres_url) as (one, _):
                    log = one.log()
                    found = set(numbers(log)) - held
                    write(log, log.next_epoch)
                    child.send_signal(signal.SIGCONT)
                    *rest, last = child.stdout.read().splitlines() or [""]
                    if sent == signal.SIGSTOP:
                        assert last == "fenced" and child.wait() == 0
                    else:
                        rest += [last] if last else []
                    told += map(int, rest)
                    assert set(told) <= found and len(found) <= len(told) + 1, "one outcome may not be known"
                    held |= {*found, log.last}
                    assert set(numbers(log)) == held
            finally:
                child.kill()
