"""RocketMQ's remoting protocol."""
