"""Our own APIs: (key, name, module, min, max, advertised min, first flexible version)."""

TABLE = ((10_000, "EndTogether", "end_together", 0, 0, 0, 0),)
