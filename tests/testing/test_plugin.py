"""The fixtures, as a user's test suite meets them."""

import pytest

pytest_plugins = ["pytester"]


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import confluent_kafka

        seen = {}

        def names(kafka):
            return set(confluent_kafka.Producer({"bootstrap.servers": kafka}).list_topics(timeout=30).topics)

        def send(kafka, topic):
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka})
            producer.produce(topic, b"x")
            assert producer.flush(30) == 0

        def test_fresh(posthouse):
            send(posthouse.kafka, "a")
            assert names(posthouse.kafka) == {"a"}

        def test_fresh_again(posthouse):
            assert names(posthouse.kafka) == set()

        def test_session(posthouse_session):
            seen["address"] = posthouse_session.kafka
            send(posthouse_session.kafka, "b")

        def test_session_again(posthouse_session, posthouse):
            assert posthouse_session.kafka == seen["address"]
            assert posthouse.kafka != seen["address"]
            assert names(posthouse_session.kafka) == {"b"}
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)


def test_the_fixtures_are_listed(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures")
    result.stdout.fnmatch_lines(["posthouse -- *", "*bootstrap address*", "posthouse_session*"])
