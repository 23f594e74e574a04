"""Errors of pipelines."""

from posthouse.spark.errors import SparkError


class WrongPipeline(SparkError):
    """A pipeline that cannot be run."""
