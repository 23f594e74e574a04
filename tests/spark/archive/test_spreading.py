"""What is said of a failure on Spark's executors."""

import pytest
from pyspark.errors import PySparkException

from posthouse.spark.archive.spreading import _sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Job aborted\nposthouse.spark.errors.SparkError: there is no topic 't'\n", "there is no topic 't'"),
        ("Job aborted\n  OSError: no space left\n  at scala.X", "no space left"),
        ("Job aborted\n  at scala.X", "Spark failed: Job aborted"),
        ("\n  \n Job aborted\n", "Spark failed: Job aborted"),
        ("", "Spark failed: PySparkException"),
    ],
)
def test_one_sentence_of_a_trace(text: str, sentence: str) -> None:
    assert _sentence(PySparkException(text)) == sentence
