"""Answers of the real RocketMQ 5.5.0 beside those of Posthouse, and upstream's own tests.

Answers.java sends the same requests of the remoting protocol to both and prints what is answered;
grpc_answers does so with the RPCs of the gRPC protocol. A step passes if both lines are the same; a
difference is a failure unless `differences.toml` has the reason, and docs/rocketmq.md lists it.
"""
