"""Objects that are shown by name, and those that are summed."""

import asyncio
from types import SimpleNamespace

from posthouse.protocols.admin.metrics.selection import Selection
from posthouse.protocols.admin.turns import Turns


def counted(count: int) -> SimpleNamespace:
    return SimpleNamespace(count=count)


def seen(selection: Selection, **objects: SimpleNamespace) -> set[str]:
    """The ones that are shown by name."""
    shown = {name for name, each in objects.items() if selection.shows(name, each)}
    selection.done()
    return shown


def total(selection: Selection) -> int:
    return asyncio.run(selection.totals(Turns()))["count"]


def test_the_first_are_shown_and_the_others_summed() -> None:
    selection = Selection(2, ("count",))
    assert seen(selection, a=counted(1), b=counted(2), c=counted(3), d=counted(4)) == {"a", "b"}
    assert (selection.summed, total(selection)) == (2, 7)


def test_nothing_is_summed_while_there_are_few() -> None:
    selection = Selection(2, ("count",))
    assert seen(selection, a=counted(1), b=counted(2)) == {"a", "b"}
    assert not selection.has_other


def test_an_object_that_is_summed_stays_so() -> None:
    selection = Selection(1, ("count",))
    a, b, c = counted(1), counted(2), counted(3)
    assert seen(selection, a=a, b=b) == {"a"}
    assert seen(selection, b=b) == set()  # a is gone,
    assert seen(selection, b=b, c=c) == {"c"}  # and a new one takes its place
    assert (selection.summed, total(selection)) == (1, 2)


def test_the_sum_never_falls() -> None:
    selection = Selection(0, ("count",))
    first = counted(5)
    seen(selection, a=first, b=counted(2))
    first.count = 6
    seen(selection, a=first)
    assert total(selection) == 8
    seen(selection)
    assert (selection.summed, total(selection)) == (0, 8)
    assert selection.has_other


def test_an_object_that_takes_the_name_of_another_counts_besides_it() -> None:
    selection = Selection(0, ("count",))
    seen(selection, a=counted(5))
    seen(selection, a=counted(1))
    assert (selection.summed, total(selection)) == (1, 6)
