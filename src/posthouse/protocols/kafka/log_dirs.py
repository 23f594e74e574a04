"""The path of the data directory in Kafka's tools."""

from posthouse.settings import Settings


def log_dir(settings: Settings) -> str:
    return "memory" if settings.memory else str(settings.data.absolute())
