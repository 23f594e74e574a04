"""The place of the records in Kafka's tools: the path of the data directory, or the shared storage."""

from posthouse.settings import Settings


def log_dir(settings: Settings) -> str:
    if settings.database is not None:
        return str(settings.database)
    return "memory" if settings.memory else str(settings.data.absolute())
