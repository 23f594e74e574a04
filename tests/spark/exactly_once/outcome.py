"""What must have come out: every order once, and totals that count every order once.

Pure: lists in, complaints out, so that it can be shown to find what it is made to find.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise


def check_passed(orders: Iterable[tuple[bytes, int]], passed: Iterable[tuple[bytes, int]]) -> list[str]:
    wanted, found = Counter(orders), Counter(passed)
    lost = [f"{order} is lost" for order in wanted - found]
    return lost + [f"{order} came more often than it was sent" for order in found - wanted]


def check_totals(orders: Iterable[tuple[bytes, int]], updates: Iterable[tuple[bytes, int, int]]) -> list[str]:
    """`updates` are (key, count, sum) in the order of their partitions."""
    counts: Counter[bytes] = Counter()
    sums: Counter[bytes] = Counter()
    for key, number in orders:
        counts[key] += 1
        sums[key] += number
    by_key: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for key, count, total in updates:
        by_key[key].append((count, total))
    complaints = []
    for key in sorted(counts.keys() | by_key.keys()):
        history = by_key[key]
        steps = [count for count, _ in history]
        if any(after <= before for before, after in pairwise(steps)):
            complaints.append(f"the count of {key!r} did not grow with every update: {steps}")
        if not history or history[-1] != (counts[key], sums[key]):
            complaints.append(f"{key!r} ends at {history[-1:]}, not at {(counts[key], sums[key])}")
    return complaints
