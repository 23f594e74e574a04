"""Which aborted transactions a chunk is told of: those that reach into it."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.client.manifests import AbortedTransaction
from posthouse.records.visibility import AbortedProducer
from posthouse.spark.segments.aborted import AbortedAhead

OFFSETS = st.integers(0, 60)


@given(st.lists(st.tuples(st.integers(1, 3), OFFSETS, OFFSETS)), st.lists(OFFSETS, unique=True))
def test_those_that_overlap(given_: list[tuple[int, int, int]], cuts: list[int]) -> None:
    aborted = [AbortedTransaction(id, min(a, b), max(a, b)) for id, a, b in given_]
    ahead = AbortedAhead(aborted)
    base = 0
    for cut in sorted(cuts):
        expected = [each for each in aborted if each.first_offset <= cut and each.last_offset >= base]
        assert sorted(ahead.of(base, cut)) == sorted(
            AbortedProducer(each.producer_id, each.first_offset) for each in expected
        )
        base = cut + 1
