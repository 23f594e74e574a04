"""Scopes in short form."""

from collections.abc import Sequence


def shortened(scopes: Sequence[str]) -> str:
    """groups/00-02 for groups/00, groups/01 and groups/02."""
    numbers: dict[str, list[int]] = {}
    for each in scopes:
        kind, _, number = each.partition("/")
        numbers.setdefault(kind, []).extend([int(number)] if number else [])
    return " ".join(f"{kind}/{_ranges(found)}" if found else kind for kind, found in numbers.items())


def _ranges(numbers: Sequence[int]) -> str:
    """00-02,05 for 0, 1, 2 and 5."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ",".join(f"{each[0]:02}" if len(each) == 1 else f"{each[0]:02}-{each[-1]:02}" for each in ranges)
