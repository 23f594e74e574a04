"""pytest as a program of spark-submit, whose session the tests then use.

POSTHOUSE_SPARK_SESSION=plain spark-submit tests/spark/submitted.py PYTEST_ARGUMENTS
"""

import os
import sys

import pytest
from pyspark.sql import SparkSession

# Programs that a test starts have sessions of their own: they must not find those of this one.
_OF_THIS_SESSION = (
    "MASTER",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYTHONPATH",
    "SPARK_CONF_DIR",
    "SPARK_ENV_LOADED",
    "SPARK_HOME",
)

if __name__ == "__main__":
    SparkSession.builder.getOrCreate()
    for name in _OF_THIS_SESSION:
        os.environ.pop(name, None)
    sys.exit(pytest.main(sys.argv[1:]))
