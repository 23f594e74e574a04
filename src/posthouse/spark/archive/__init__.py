"""The archive: records of topics as Parquet files, with a manifest of exactly what is archived.

archive = Archiver(spark, "localhost:9092", "/data/archive")
archive.run(["orders"])
yesterday = read_archive(spark, "/data/archive", ["orders"], since=…, until=…)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posthouse.spark.archive.frames import read_archive
    from posthouse.spark.archive.job import Archiver
    from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange, ArchiveSlice

__all__ = ["ArchivePlan", "ArchiveRange", "ArchiveSlice", "Archiver", "read_archive"]

_PLACES = {
    "ArchivePlan": "reading",
    "ArchiveSlice": "reading",
    "Archiver": "job",
    "ArchiveRange": "reading",
    "read_archive": "frames",
}


def __getattr__(name: str) -> Any:
    """Lazy import: reading a manifest needs no Spark."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
