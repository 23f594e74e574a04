"""Our own APIs: (key, name, module, min, max, advertised min, first flexible version)."""

TABLE = (
    (10_000, "EndTogether", "end_together", 0, 0, 0, 0),
    (10_001, "SegmentManifest", "segment_manifest", 0, 0, 0, 0),
    (10_002, "RenewHold", "renew_hold", 0, 0, 0, 0),
    (10_003, "KeyPlaces", "key_places", 0, 0, 0, 0),
)
