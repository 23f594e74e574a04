"""What can be wrong with a pipeline."""

from posthouse.spark.errors import SparkError


class WrongPipeline(SparkError):
    """A pipeline that cannot be run as it is."""
