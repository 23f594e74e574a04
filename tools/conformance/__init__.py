"""`make conformance`: the test suites of other people's clients, run against a real `posthouse serve`.

    python -m tools.conformance                     all suites
    python -m tools.conformance amqp                those of one protocol
    python -m tools.conformance rocketmq            answers beside those of the real RocketMQ
    python -m tools.conformance librdkafka --only 0012 --only 0103
    python -m tools.conformance kafka-python --only test_group
    python -m tools.conformance kombu --broker 127.0.0.1:5673      against another broker, such as RabbitMQ

A run goes: fetch and prepare the suite in `.conformance/` (workspace) → start a broker on an empty directory
(broker) → run the suite (suites says which module does) → compare with what is known to fail (expectations) →
table, `.conformance/results-….json` and exit code (report). Nothing of the suites' sources is kept in the
repository; their versions are pinned in workspace.py.
"""
