"""Spark looks for top-level modules of this name and registers their `DefaultSource` by itself."""

from posthouse.spark.datasource import PosthouseDataSource as DefaultSource

__all__ = ["DefaultSource"]
