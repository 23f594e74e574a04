"""The traffic report as one HTML page: no scripts, fonts or other resources; follows the reader's colour
scheme."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from posthouse.spark.pipelines.plots import Line, plot
from posthouse.spark.pipelines.traffic import MINUTE_MS, Lag, TrafficReport, TrafficSlice

_FEWEST_STEPS = 10
_MOST_LINES = 5
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2733;--soft:#66717d;--rule:#e2e6ea;--paper:#fff;--card:#f7f8fa;
--c0:#1668a8;--c1:#c2571a;--c2:#2b8a4b;--c3:#8a3fa0;--c4:#9a7b00}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#98a3ae;--rule:#333c45;--paper:#14191f;
--card:#1b2229;--c0:#5aa9e6;--c1:#f0955a;--c2:#69c98a;--c3:#c98ade;--c4:#dcbc4a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:1180px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{color:var(--soft);margin:.2rem 0 1rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid var(--rule)}
th{font-weight:600;color:var(--soft)}th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:.8rem}
svg{background:var(--card);border-radius:6px;width:100%;height:auto}
text{font:11px system-ui,sans-serif;fill:var(--soft)}.title{font-size:12px;font-weight:600;fill:var(--ink)}
.grid{stroke:var(--rule);stroke-width:1}polyline,line{fill:none;stroke-width:1.5;stroke-linejoin:round}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--soft)}.scroll{max-height:22rem;overflow:auto}
""" + "".join(
    f".s{index}{{stroke:var(--c{index})}}.p{index}{{fill:var(--c{index})}}"
    f".a{index}{{fill:var(--c{index});opacity:.18}}"
    for index in range(_MOST_LINES)
)


def page(traffic: TrafficReport) -> str:
    period = f"{_shown(traffic.start)} to {_shown(traffic.end)} UTC"
    body = [
        "<h1>Traffic</h1>",
        f"<p>{escape(traffic.bootstrap)}, {period}, by {_step(traffic.step)}</p>",
        _totals(traffic) if traffic.topics else "<p>No messages in this time.</p>",
        *(_topic(traffic, total) for total in traffic.topics),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Traffic, {period}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _totals(traffic: TrafficReport) -> str:
    heads = ("topic", "messages", "bytes", "keys, about", "median size", "95 %", "99 %", "largest", "lag")
    rows = []
    for total in traffic.topics:
        lags = _lag_by_group(traffic.lags, total.topic)
        lag = ", ".join(f"{group} {sum(points.values()):,}" for group, points in lags.items()) or "–"
        rows.append((*_cells(total.topic, total), lag))
    return _table(heads, rows)


def _topic(traffic: TrafficReport, total: TrafficSlice) -> str:
    minutes = [each for each in traffic.minutes if each.topic == total.topic]
    step = traffic.step
    start, end = _span(minutes, step)
    lags = _lag_by_group(traffic.lags, total.topic)
    # Largest lag first; a plot with more lines is unreadable.
    worst = sorted(lags, key=lambda group: -sum(lags[group].values()))[:_MOST_LINES]

    def filled(values: dict[int, int]) -> list[tuple[int, float]]:
        return [(moment, values.get(moment, 0)) for moment in range(start, end, step)]

    per = f"per {_step(step)}"
    plots = [
        plot(
            f"messages {per}",
            [Line(name="messages", points=filled({_at(each): each.messages for each in minutes}))],
            start=start, end=end, step=step, say=_count, filled=True,
        ),
        plot(
            f"bytes {per}",
            [Line(name="bytes", points=filled({_at(each): each.bytes for each in minutes}))],
            start=start, end=end, step=step, say=_bytes, filled=True,
        ),
        plot(
            f"distinct keys {per}",
            [Line(name="keys", points=filled({_at(each): each.keys for each in minutes}))],
            start=start, end=end, step=step, say=_count, filled=True,
        ),
        plot(
            "size of a message",
            [
                Line(name=name, points=[(_at(each), each.sizes[index]) for each in minutes])
                for index, name in enumerate(("median", "95 %", "99 %", "largest"))
            ],
            start=start, end=end, step=step, say=_bytes,
        ),
    ]  # fmt: skip
    if worst:
        lines = [Line(name=group, points=filled(lags[group])) for group in worst]
        title = "lag: messages of that time not read yet"
        plots.append(plot(title, lines, start=start, end=end, step=step, say=_count))
    rows = [_cells(_shown(_at(each)), each) for each in minutes]
    heads = ("time (UTC)", "messages", "bytes", "keys", "median size", "95 %", "99 %", "largest")
    return (
        f'<h2>{escape(total.topic)}</h2><div class="plots">{"".join(plots)}</div>'
        f'<details><summary>as a table</summary><div class="scroll">{_table(heads, rows)}</div></details>'
    )


def _span(minutes: Sequence[TrafficSlice], step: int) -> tuple[int, int]:
    """From the first to the last minute with messages, extended to a minimum."""
    start, end = min(map(_at, minutes)), max(map(_at, minutes)) + step
    return start, max(end, start + _FEWEST_STEPS * step)


def _lag_by_group(lags: Sequence[Lag], topic: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for lag in lags:
        if lag.topic == topic:
            found.setdefault(lag.group, {})[lag.minute] = lag.messages
    return found


def _cells(first: str, each: TrafficSlice) -> tuple[str, ...]:
    sizes = map(_bytes, each.sizes)
    return first, f"{each.messages:,}", _bytes(each.bytes), f"{each.keys:,}", *sizes


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _at(each: TrafficSlice) -> int:
    assert each.minute is not None
    return each.minute


def _shown(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _step(ms: int) -> str:
    return {1: "minute", 10: "10 minutes", 60: "hour", 1440: "day"}[ms // MINUTE_MS]


def _count(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g} B"
