"""Spark on the log: the source and the sink `posthouse`, the archive, and pipelines.

Needs the extra `spark`: `pip install 'posthouse[spark]'`. Nothing outside of this package imports PySpark.
"""

import os
import sys
from importlib.util import find_spec
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register `format("posthouse")`, if Spark has not found it by itself.

    Spark looks for modules named `pyspark_…` in the Python of its workers, and so finds ours if it is
    installed there.
    """
    worker = os.environ.get("PYSPARK_PYTHON", "python3")
    if which(worker) == sys.executable and find_spec("pyspark_posthouse") is not None:
        return
    from posthouse.spark.datasource import PosthouseDataSource

    spark.dataSource.register(PosthouseDataSource)
