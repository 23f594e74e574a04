"""Contenders that do the same work take turns, round by round, after one round that does not count."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.spark.figures import Line, Missing, Ratio, Times
from bench.spark.sessions import SessionFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    key: str
    """The letter that ratios name it by."""
    name: str
    run: Callable[[], float]
    """The seconds that it took."""
    check: Callable[[], None] | None = None
    """Called once, beforehand: raises SessionFailed where it would not do the whole work."""
    against: tuple[tuple[str, float | None], ...] = ()
    """Keys of those it is compared with, each with the aim."""
    is_yardstick: bool = False


def contest(
    section: str,
    contenders: Sequence[Contender],
    rounds: int,
    *,
    amount: float,
    unit: str,
    megabytes: float | None = None,
) -> Iterator[Line | Missing]:
    """Rates: `amount` is what each of them gets done in its seconds."""
    there: list[Contender] = []
    for each in contenders:
        try:
            if each.check is not None:
                each.check()
            each.run()
        except SessionFailed as error:
            aims = _aims_against(each.key, contenders)
            yield Missing(section=section, name=_named(each), reason=str(error), open_aims=aims)
        else:
            there.append(each)
    seconds: dict[str, list[float]] = {each.key: [] for each in there}
    for _ in range(rounds):
        for each in there:
            seconds[each.key].append(each.run())
    times = {key: Times(tuple(measured)) for key, measured in seconds.items()}
    for each in there:
        rate = times[each.key].rate(amount)
        yield Line(
            section=section,
            name=_named(each),
            value=rate,
            unit=unit,
            megabytes=None if megabytes is None else rate.middle * megabytes / amount,
            ratios=_ratios(each, times),
            is_yardstick=each.is_yardstick,
        )


def _ratios(contender: Contender, times: dict[str, Times]) -> tuple[Ratio, ...]:
    own = times[contender.key]
    return tuple(
        Ratio(spread=own.faster_than(times[key]), to=key, aim=aim)
        for key, aim in contender.against
        if key in times
    )


def _aims_against(key: str, contenders: Sequence[Contender]) -> tuple[str, ...]:
    return tuple(
        f"({each.key}) ≥ {aim:.2f} × {other}"
        for each in contenders
        for other, aim in each.against
        if other == key and aim is not None
    )


def _named(contender: Contender) -> str:
    return f"({contender.key}) {contender.name}"
