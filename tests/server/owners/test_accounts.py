"""Accounts: what a principal has is counted, bounded by its quotas and given back."""

from __future__ import annotations

import gc

import pytest
import trio

from dataspace.errors import Refused
from server.config.principals import DAEMON, Principal, Quotas
from server.owners.accounts import Accounts
from server.owners.holdings import COUNTED, AccountTotals

ONE, OTHER = Principal("address", ("10.0.0.1",)), Principal("address", ("10.0.0.2",))
ALL_ONE = Quotas(**dict.fromkeys(COUNTED, 1))


@pytest.mark.parametrize("what", COUNTED)
def test_beyond_a_quota_is_refused_by_its_name_and_others_go_on(what: str) -> None:
    accounts = Accounts(ALL_ONE)
    one, other = accounts.of(ONE), accounts.of(OTHER)
    one.reserve(what)
    with pytest.raises(
        Refused, match=rf"of address:10\.0\.0\.1, the limit is quota\.{what}=1 of each principal"
    ):
        one.reserve(what)
    assert one.used(what) == 1, "what was refused counts for nothing"
    other.reserve(what)
    one.release(what)
    one.reserve(what)


def test_every_quota_is_counted_or_of_one_turn_or_a_rate() -> None:
    others = {"shapes", "actions_per_publication", "turns_per_second", "requests_per_second"}
    assert {*COUNTED, *others} == set(Quotas.__dataclass_fields__)


def test_the_daemon_itself_has_no_quota() -> None:
    account = Accounts(ALL_ONE).of(DAEMON)
    for what in COUNTED:
        account.reserve(what, 100)
    account.admit(100, 100)


def test_narrowed_tokens_share_the_quotas_of_the_one_they_come_from() -> None:
    accounts = Accounts(ALL_ONE)
    account = accounts.of(Principal("token", ("gateway",)))
    assert accounts.of(Principal("token", ("gateway", "sensor-7"))) is account
    assert accounts.of(Principal("token", ("other", "sensor-7"))) is not account


def test_accounts_that_nothing_refers_to_are_forgotten() -> None:
    accounts = Accounts(ALL_ONE)
    kept = accounts.of(ONE)
    for at in range(1000):
        accounts.of(Principal("address", (f"10.1.0.{at}",)))
    gc.collect()
    assert len(accounts) == 1 and accounts.of(ONE) is kept


def test_facts_count_for_the_account_that_wrote_last() -> None:
    accounts, holdings = Accounts(Quotas(facts=5, facts_bytes=5_000)), AccountTotals()
    one, other = accounts.of(ONE), accounts.of(OTHER)
    holdings.set_claimed("durable:d", one, 3, 300)
    holdings.set_claimed("session:1", one, 1, 100)
    assert (one.used("facts"), one.used("facts_bytes")) == (4, 400)
    one.admit(1, 4_600)
    with pytest.raises(Refused, match=r"quota\.facts=5"):
        one.admit(2, 0)
    with pytest.raises(Refused, match=r"quota\.facts_bytes=5000"):
        one.admit(0, 4_601)
    holdings.set_claimed("durable:d", other, 4, 450)
    assert (one.used("facts"), other.used("facts"), other.used("facts_bytes")) == (1, 4, 450)
    holdings.end("durable:d")
    holdings.end("session:1")
    holdings.end("nothing")
    assert [each.used(what) for each in (one, other) for what in ("facts", "facts_bytes")] == [0] * 4


async def test_what_is_over_the_rate_waits(autojump_clock: trio.testing.MockClock) -> None:
    account = Accounts(Quotas(turns_per_second=10)).of(ONE)
    assert account.is_paced and not Accounts(Quotas()).of(ONE).is_paced
    began = trio.current_time()
    for _ in range(10):
        await account.pace("turns")
    assert trio.current_time() == pytest.approx(began), "those of one second come at once"
    for _ in range(20):
        await account.pace("turns")
    assert trio.current_time() - began == pytest.approx(2.0)


async def test_each_wrong_token_waits_longer_than_the_one_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    accounts, waits = Accounts(Quotas()), []
    account = accounts.of(ONE)
    for _ in range(7):
        began = trio.current_time()
        await account.slow_down(2.5)
        waits.append(round(trio.current_time() - began, 3))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    await trio.sleep(61)
    began = trio.current_time()
    await account.slow_down(2.5)
    assert trio.current_time() - began == pytest.approx(0.1)
