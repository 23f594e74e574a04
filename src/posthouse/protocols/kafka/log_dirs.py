"""What Kafka's tools know the data directory by."""

from posthouse.settings import Settings


def log_dir(settings: Settings) -> str:
    return "memory" if settings.memory else str(settings.data.absolute())
