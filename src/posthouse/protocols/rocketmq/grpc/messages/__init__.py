"""The messages of apache.rocketmq.v2, and the Protocol Buffers wire format that they are written in. Sans-IO.

codes, enums           the enums of the protocol
definition             messages that several calls use
telemetry              settings, and the commands of the stream Telemetry
service                requests, responses and the table of calls
well_known             Timestamp and Duration
proto_message, fields  what a message is, and how one is declared
decoders, encoders     turn declarations into functions
wire                   varints, unknown fields, what occurs twice
"""
