"""AMQP messages as records of the log, and records as AMQP messages.

Headers of a record that holds an AMQP message, in this order:

    posthouse.exchange  its name, empty for the default one; always there
    amqp.properties     the property list as it came, but for BCC; there if any property was set
    amqp.content-type   and so on: single properties as text, for readers of other protocols
    <name>              every application header as text, bytes or JSON; not those that begin like ours

Only the first two count on the way back. The broker adds `posthouse.deaths` to dead letters.
"""
