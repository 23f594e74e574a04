"""Requests of the gRPC protocol, good and bad ones, and what is answered, one line for each step.

`python -m tools.conformance.rocketmq.grpc_answers ENDPOINTS REMOTING` sends them to the broker there, which
has no topics yet.
"""
