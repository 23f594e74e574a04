"""Answers to requests of the remoting protocol: those of the real RocketMQ 5.5.0 beside those of Posthouse.

Answers.java sends the same requests to both and prints what is answered. A step passes if both lines are the
same; a difference is a failure unless `known_failures.toml` has the reason, and docs/rocketmq.md lists it.
"""
