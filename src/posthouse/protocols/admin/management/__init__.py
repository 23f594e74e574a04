"""RabbitMQ's management API, as far as its tools use it: paths, fields and errors are RabbitMQ's.

errors        {"error": …, "reason": …} instead of problem details
listing       columns, sorting and pages of lists; long lists are streamed
other_rows    what other brokers have of a list
requests      what handlers read out of paths and bodies
routes        every path

Declarations, bindings and messages go by a direct channel (`protocols.direct_channel`), which checks them as
if they had come by AMQP.
"""
