"""Distribution of work on files over a Spark cluster: a piece may run twice, but only one result counts."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.manifest import ArchivedFile

T = TypeVar("T")

_ANSWER = pa.schema([("files", pa.string())])
_RAISED = re.compile(r"^\s*(?:posthouse\.[\w.]+|\w*Error): (?P<sentence>.+)$", re.MULTILINE)


def spread(
    spark: SparkSession, pieces: Sequence[T], work: Callable[[T], list[ArchivedFile]]
) -> list[ArchivedFile]:
    """The files that the pieces were written to.

    A retried piece writes files under other names; only those of the successful attempt are returned.
    """
    if not pieces:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                files = json.dumps([file.to_json() for file in work(pieces[number])])
                yield pa.RecordBatch.from_arrays([pa.array([files])], schema=_ANSWER)

    frame = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(run, "files STRING")
    try:
        rows = frame.collect()
    except PySparkException as error:
        raise ArchiveError(_sentence(error)) from error
    return [ArchivedFile.from_json(file) for row in rows for file in json.loads(row.files)]


def parallelism(spark: SparkSession) -> int:
    """The number of parallel tasks; a guess if the session does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, NotImplementedError, AttributeError):
        return 8


def _sentence(error: PySparkException) -> str:
    """The task's error message, extracted from Spark's trace."""
    text = str(error)
    found = _RAISED.findall(text)
    if found:
        return str(found[-1])
    first = next(filter(None, map(str.strip, text.splitlines())), type(error).__name__)
    return f"Spark failed: {first}"
