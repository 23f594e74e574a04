"""Pipelines: PySpark programs that `posthouse pipeline` runs, and some that are ready to use or to copy."""
