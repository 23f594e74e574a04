"""Errors of an archive."""

from posthouse.model.errors import PosthouseError
from posthouse.spark.errors import SparkError


class ArchiveError(SparkError, PosthouseError):
    """Base of these errors. Every message is one sentence that says what to do."""


class NoArchive(ArchiveError):
    """There is no manifest at this location."""


class ArchiveConflict(ArchiveError):
    """Another archiver committed first; this change was not applied, and the archive is intact."""


class ArchiveDamaged(ArchiveError):
    """A manifest that cannot be read or is inconsistent."""
