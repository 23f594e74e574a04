"""Values in fixed buckets."""

from posthouse.model.histogram import Histogram


def test_values_are_counted_by_their_bounds() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 3):
        histogram.observe(value)
    assert histogram.buckets == [2, 1, 1]
    assert histogram.cumulative() == [2, 3, 4]
    assert (histogram.count, histogram.sum) == (4, 6.0)


def test_a_value_may_count_for_many() -> None:
    histogram = Histogram((1, 2))
    histogram.observe_many(2, 10)
    assert (histogram.cumulative(), histogram.sum) == ([0, 10, 10], 20.0)


def test_quantiles_are_estimated_within_buckets() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) is None
    for _ in range(10):
        histogram.observe(1.5)
    assert histogram.quantile(0.5) == 1.5
    assert histogram.quantile(1.0) == 2.0
    histogram.observe_many(100, 30)
    assert histogram.quantile(0.1) == 1.4
    assert histogram.quantile(0.99) == 4.0, "the highest bound"
