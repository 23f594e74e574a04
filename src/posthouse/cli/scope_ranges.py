"""Scopes in short form."""

from collections.abc import Sequence


def shortened(scopes: Sequence[str]) -> str:
    """groups/00-02 for groups/00, groups/01 and groups/02."""
    others = [each for each in scopes if not each.startswith("groups/")]
    ranges: list[list[int]] = []
    for number in sorted(int(each.removeprefix("groups/")) for each in scopes if each not in others):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    texts = [f"{each[0]:02}" if len(each) == 1 else f"{each[0]:02}-{each[-1]:02}" for each in ranges]
    return " ".join([*others, *([f"groups/{','.join(texts)}"] if texts else [])])
