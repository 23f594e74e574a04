"""RocketMQ's remoting protocol as bytes: commands out of a stream, and bodies out of values. Sans-IO."""
