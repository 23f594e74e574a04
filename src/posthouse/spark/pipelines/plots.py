"""Plots over time, drawn as inline SVG: the page has no dependencies and can be mailed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 560, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 26, 26
_MINUTE = 60_000
_TICK_STEPS = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 40320)
)

Point = tuple[int, float]
"""A time in ms since the epoch, and a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    points: Sequence[Point]


def plot(
    title: str,
    lines: Sequence[Line],
    *,
    start: int,
    end: int,
    step: int,
    say: Callable[[float], str],
    filled: bool = False,
) -> str:
    """Lines over the time from `start` to `end`; a step without a point interrupts its line."""
    top = _nice(max((value for line in lines for _, value in line.points), default=0))
    across, down = _scale(start, max(end, start + step)), _scale_down(top)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">',
        f'<text class="title" x="{_LEFT}" y="14">{escape(title)}</text>',
        *_value_ticks(top, down, say),
        *_time_ticks(start, max(end, start + step), across),
    ]
    for index, line in enumerate(lines):
        for piece in _pieces(line.points, step):
            spots = [(across(moment + step // 2), down(value)) for moment, value in piece]
            parts.append(_drawn(spots, index, down(0), filled))
    parts += _legend(lines) if len(lines) > 1 else []
    return "".join([*parts, "</svg>"])


def _drawn(spots: Sequence[tuple[float, float]], index: int, floor: float, filled: bool) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    if len(spots) == 1:  # a line of one point would be invisible
        [(x, y)] = spots
        bar = (
            f'<line class="s{index}" x1="{x:.1f}" y1="{floor:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'
            if filled
            else ""
        )
        return f'{bar}<circle class="p{index}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
    area = ""
    if filled:
        first, last = spots[0][0], spots[-1][0]
        area = f'<polygon class="a{index}" points="{first:.1f},{floor:.1f} {path} {last:.1f},{floor:.1f}"/>'
    return f'{area}<polyline class="s{index}" points="{path}"/>'


def _pieces(points: Sequence[Point], step: int) -> list[list[Point]]:
    pieces: list[list[Point]] = []
    for point in points:
        if pieces and point[0] - pieces[-1][-1][0] <= step:
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return pieces


def _scale(start: int, end: int) -> Callable[[float], float]:
    return lambda moment: _LEFT + (WIDTH - _LEFT - _RIGHT) * (moment - start) / (end - start)


def _scale_down(top: float) -> Callable[[float], float]:
    return lambda value: HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _value_ticks(top: float, down: Callable[[float], float], say: Callable[[float], str]) -> list[str]:
    parts = []
    for quarter in (0, 0.5, 1):
        y = down(top * quarter)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        place = f'x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="tick" {place}>{say(top * quarter)}</text>')
    return parts


def _time_ticks(start: int, end: int, across: Callable[[float], float]) -> list[str]:
    step = next((each for each in _TICK_STEPS if (end - start) / each <= 6), _TICK_STEPS[-1])
    form = "%H:%M" if step < 1440 * _MINUTE else "%d %b"
    parts = []
    for moment in range(-(-start // step) * step, end + 1, step):
        x, text = across(moment), datetime.fromtimestamp(moment / 1000, UTC).strftime(form)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 9}" text-anchor="middle">{text}</text>')
    return parts


def _legend(lines: Sequence[Line]) -> list[str]:
    parts = []
    x = float(WIDTH - _RIGHT)
    for index, line in reversed(list(enumerate(lines))):
        x -= 6.2 * len(line.name) + 28
        parts.append(f'<line class="s{index}" x1="{x:.0f}" y1="10" x2="{x + 12:.0f}" y2="10"/>')
        parts.append(f'<text class="tick" x="{x + 16:.0f}" y="14">{escape(line.name)}</text>')
    return parts


def _nice(value: float) -> float:
    """The next round number, so that half of it is round as well."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * digit for digit in (1, 2, 4, 6, 8, 10) if power * digit >= value)
