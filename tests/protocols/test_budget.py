"""The memory of all connections together."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.budget import SMALL, STUCK_SECONDS, Account, Budget

LIMIT = 10 * SMALL


class Holder:
    def __init__(self, budget: Budget, name: str) -> None:
        self.regulated = 0
        self.gone = False
        self.account: Account = budget.account(name, self.regulate, self.leave)

    def regulate(self) -> None:
        self.regulated += 1

    def leave(self) -> None:
        self.gone = True
        self.account.close()


def test_whoever_holds_something_waits_while_it_is_spent() -> None:
    budget = Budget(LIMIT)
    first, second = Holder(budget, "first"), Holder(budget, "second")
    first.account.set(LIMIT)
    assert not first.account.must_wait()
    second.account.set(2 * SMALL)
    assert first.account.must_wait() and second.account.must_wait()
    second.account.set(0)
    assert (first.regulated, second.regulated) == (1, 1)
    assert not first.account.must_wait()


def test_there_is_always_room_to_say_something_short() -> None:
    budget = Budget(LIMIT)
    large, small = Holder(budget, "large"), Holder(budget, "small")
    large.account.set(2 * LIMIT)
    small.account.set(SMALL)
    assert not small.account.must_wait()
    assert budget.room == -LIMIT


def test_the_largest_that_does_not_move_has_to_go() -> None:
    budget = Budget(LIMIT)
    moving, large, small = (Holder(budget, name) for name in ("moving", "large", "small"))
    large.account.set(5 * SMALL)
    small.account.set(4 * SMALL)
    for second in range(STUCK_SECONDS):
        moving.account.set((20 - second) * SMALL)
        assert not large.gone
        budget.sweep()
    assert (moving.gone, large.gone, small.gone) == (False, True, False)


def test_nobody_has_to_go_while_there_is_room() -> None:
    budget = Budget(LIMIT)
    holder = Holder(budget, "holder")
    holder.account.set(LIMIT)
    for _ in range(10 * STUCK_SECONDS):
        budget.sweep()
    assert not holder.gone


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3 * LIMIT) | st.none()), max_size=60))
def test_what_is_held_adds_up(changes: list[tuple[int, int | None]]) -> None:
    budget = Budget(LIMIT)
    accounts = [Holder(budget, str(index)).account for index in range(5)]
    for index, held in changes:
        if held is None:
            accounts[index].close()
        else:
            accounts[index].set(held)
        assert budget.room == LIMIT - sum(account.held for account in accounts)
        assert all(account.held == 0 or account.held > SMALL for account in accounts)
