"""RocketMQ's gRPC protocol, package apache.rocketmq.v2."""
