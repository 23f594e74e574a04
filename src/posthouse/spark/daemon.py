"""The process from which Spark's Python workers are forked, with all modules imported.

Spark starts a new Python process for each step of a micro-batch that runs on the driver (planning a read,
committing a write), and each would import PyArrow and this package again. A child of this process inherits
them; the objects are frozen, because a garbage collection would copy shared pages.

PySpark imports nothing before the fork because libraries may start threads. PyArrow starts two: its
allocator's and one that waits; both survive a fork while they are idle, and here nothing else runs.
"""

import gc

from pyspark.daemon import manager


def prepare() -> None:
    import pyarrow  # noqa: F401
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.commit_data_source_write
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.sql.worker.python_streaming_sink_runner
    import pyspark.sql.worker.write_into_data_source
    import pyspark.worker  # noqa: F401

    import posthouse.spark.datasource  # noqa: F401

    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    manager()
