"""The page says what was reached, what was missed, and what nobody knows."""

from dataclasses import replace

from rich.console import Console

from bench.queues import report
from bench.queues.contests import Contender, Figures, Plan, Stage
from bench.queues.display import Display
from bench.queues.figures import Row, Verdict
from bench.queues.peers import POSTHOUSE, RABBITMQ, Absent
from bench.queues.workers import LoadFailed
from bench.spark.figures import Spread

CIRCUMSTANCES = report.Circumstances(
    command="make bench-queues",
    commit="abc",
    plan=Plan(),
    is_trial=False,
    is_complete=True,
    versions={RABBITMQ: "3.10"},
)


def rate(**rounds: tuple[float, ...]) -> Row:
    return Row(section="Section", name="publish", unit="messages/s", rounds=rounds, is_ahead_the_aim=True)


def test_ratios_are_taken_round_by_round() -> None:
    row = rate(Posthouse=(20.0, 60.0, 30.0), RabbitMQ=(10.0, 20.0, 10.0))
    assert row.ratio(RABBITMQ) == Spread(3.0, 2.0, 3.0)
    assert row.aims() == [("> 1.00 × RabbitMQ", Verdict.REACHED)]


def test_less_may_be_better() -> None:
    row = Row(
        section="S",
        name="p99",
        unit="ms",
        rounds={POSTHOUSE: (8.0,), RABBITMQ: (4.0,)},
        is_less_better=True,
        is_ahead_the_aim=True,
        most=10,
    )
    assert row.ratio(RABBITMQ) == Spread(0.5, 0.5, 0.5)
    assert [verdict for _, verdict in row.aims()] == [Verdict.MISSED, Verdict.REACHED]


def test_as_good_is_not_ahead() -> None:
    assert rate(Posthouse=(5.0,), RabbitMQ=(5.0,)).aims()[0][1] is Verdict.MISSED


def test_a_share_is_compared_with_its_own_bound() -> None:
    for share, verdict in ((0.95, Verdict.REACHED), (0.94, Verdict.MISSED)):
        row = Row(section="S", name="left", unit="× empty", rounds={POSTHOUSE: (share,)}, least=0.95)
        assert row.aims() == [("≥ 0.95 × empty", verdict)]


def test_the_page_of_a_run_with_everybody() -> None:
    row = rate(**{POSTHOUSE: (20.0, 30.0), RABBITMQ: (10.0, 10.0), "Redis always, list": (40.0, 40.0)})
    page = report.document([row], CIRCUMSTANCES)
    assert "1 of 1 aims are reached." in page
    assert "| publish | 25.00 (20.00 – 30.00) messages/s | 10.00 messages/s | 2.50 (2.00 – 3.00) |" in page
    assert "| publish | 40.00 messages/s; ratio 0.62 |" in page
    assert "commit abc.\n" in page
    assert "RabbitMQ 3.10" in page


def test_the_page_says_what_is_wrong_with_it() -> None:
    assert "as a trial" in report.document([], replace(CIRCUMSTANCES, is_trial=True))
    assert "did not come to its end" in report.document([], replace(CIRCUMSTANCES, is_complete=False))


def test_the_page_without_posthouse() -> None:
    row = Row(
        section="Section",
        name="publish",
        unit="messages/s",
        rounds={RABBITMQ: (10.0,)},
        missing={POSTHOUSE: "it did not start: no such option: --amqp"},
        is_ahead_the_aim=True,
    )
    page = report.document([row], CIRCUMSTANCES)
    assert "0 of 1 aims are reached." in page
    assert "- open: Section, publish: Posthouse not measured; the aim was > 1.00 × RabbitMQ" in page
    assert "| publish | not measured | 10.00 messages/s |  | > 1.00 × RabbitMQ: open |" in page
    assert "- not measured: Posthouse: it did not start: no such option: --amqp" in page


def test_the_page_without_anybody() -> None:
    page = report.document([rate()], CIRCUMSTANCES)
    assert "Posthouse and RabbitMQ not measured" in page


def test_what_is_missed_is_told_with_what_came_instead() -> None:
    page = report.document([rate(Posthouse=(5.0,), RabbitMQ=(10.0,))], CIRCUMSTANCES)
    assert (
        "- missed: Section, publish: 5.00 messages/s, 0.50 × RabbitMQ; the aim was > 1.00 × RabbitMQ" in page
    )


def test_peers_take_turns_and_failures_do_not_stop_the_others() -> None:
    order: list[str] = []

    def runner(name: str, failure: Exception | None = None) -> Contender:
        def run() -> Figures:
            order.append(name)
            if failure is not None:
                raise failure
            return {"rate": float(len(order))}

        return Contender(name, run)

    stage = Stage(Plan(rounds=3), Display(Console(quiet=True)))
    contenders = [
        runner("a"),
        runner("b", Absent("not installed")),
        runner("c"),
        runner("d", LoadFailed("stuck")),
    ]
    outcome = stage.contest("something", contenders)
    assert order == ["a", "b", "c", "d", "c", "a", "c", "a"]
    assert set(outcome.of("rate")) == {"a", "c"}
    assert outcome.missing == {"b": "not installed", "d": "stuck"}
    assert stage.absent == {"b": "not installed"}
    assert stage.contest("something else", contenders[1:2]).missing == {"b": "not installed"}
