"""`make conformance`: the test suites of other people's Kafka clients, run against a real `posthouse serve`.

    python -m tools.conformance                     both suites
    python -m tools.conformance librdkafka --only 0012 --only 0103
    python -m tools.conformance kafka-python --only test_group

A run goes: fetch and prepare the suite in `.conformance/` (workspace) → start a broker on an empty directory
(broker) → run the suite (kafka_python, librdkafka) → compare with what is known to fail (expectations) →
table, `.conformance/results-….json` and exit code (report). Nothing of the suites' sources is kept in the
repository; their versions are pinned in workspace.py.
"""
