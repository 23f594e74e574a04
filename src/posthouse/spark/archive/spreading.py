"""Work on files, spread over a Spark cluster: each piece may be done twice, but only one answer counts."""

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
    """The files that the pieces were made into.

    A piece that is tried again writes files under other names; only those of the try that counts are here.
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
    """How many tasks run at once; a guess where the session does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, NotImplementedError, AttributeError):
        return 8


def _sentence(error: PySparkException) -> str:
    """What the task said, out of the trace that Spark wraps it in."""
    found = _RAISED.findall(str(error))
    return found[-1] if found else f"Spark failed: {str(error).splitlines()[0]}"
