"""pytest as a program of spark-submit, whose session the tests then use.

POSTHOUSE_SPARK_SESSION=plain spark-submit tests/spark/submitted.py PYTEST_ARGUMENTS
"""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
