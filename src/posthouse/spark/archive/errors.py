"""What can go wrong with an archive."""

from posthouse.model.errors import PosthouseError
from posthouse.spark.errors import SparkError


class ArchiveError(SparkError, PosthouseError):
    """The root of them. Every message is one sentence that says what to do."""


class NoArchive(ArchiveError):
    """There is no manifest where one was looked for."""


class ArchiveConflict(ArchiveError):
    """Another archiver was faster; what was to be added is not, and nothing is broken."""


class ArchiveDamaged(ArchiveError):
    """A manifest that cannot be read, or one that says what cannot be."""
