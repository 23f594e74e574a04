"""AMQP 0-9-1 as bytes: events out of a stream, and frames out of values. Sans-IO."""
