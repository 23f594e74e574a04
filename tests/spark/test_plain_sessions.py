"""Sessions that are not ours: nothing may rest on the settings of posthouse.spark.session.

A few tests on each, in `make test-long`; `make test-spark-versions` runs all of them, on the oldest and the
newest PySpark.
"""

from pathlib import Path

import pytest

from tests.spark.runs import SUBMIT, run_tests

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-cluster")]

PAGES = "tests/spark/test_spark_pages.py"
ON_PLAIN = (
    "test_from_topic_to_topic",
    "test_a_batch_read",
    "test_registered_by_hand",
    "test_the_sink_in_foreach_batch",
)
FRAME = "tests/spark/test_source_batch.py::test_one_frame_for_several_queries[false]"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "tests", "passed"),
    [
        ("plain", (*(f"{PAGES}::{name}" for name in ON_PLAIN), FRAME), 5),
        ("connect", (f"{PAGES}::test_a_batch_read",), 1),
        (SUBMIT, (f"{PAGES}::test_a_batch_read",), 1),
    ],
)
def test_a_session_with_nothing_set(kind: str, tests: tuple[str, ...], passed: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_tests(kind, *tests, log=log, timeout=590), log.read_text()[-5000:]
    assert f"{passed} passed" in log.read_text(), log.read_text()[-2000:]
