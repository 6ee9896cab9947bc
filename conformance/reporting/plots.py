# SPDX-License-Identifier: Apache-2.0
"""Figures of a report as SVG: they take the colours of the page, and scale with it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from markupsafe import Markup, escape

from conformance.reporting.performance import by_length

WIDTH = 640
LEFT, RIGHT, TOP, BOTTOM = 86, 16, 14, 52

#: Above the largest value and below the least one.
ROOM = 12


@attrs.frozen
class Point:
    """A median with its interval, over a position on the x axis."""

    x: float
    low: float
    middle: float
    high: float


@attrs.frozen
class Row:
    """A median with its interval, the noise of the run, and whether it is more than that."""

    name: str
    low: float
    middle: float
    high: float
    floor: float
    differs: bool


def figures(document: Mapping[str, Any]) -> list[tuple[str, Markup]]:
    """Return the plots of a performance document, each with its caption."""
    steps: Sequence[Mapping[str, Any]] = document["steps"]
    plain = [cost for cost in steps if not cost["churning"]]
    sweeps = (
        ("Cost of a step by the size of the batch", "requests", "requests"),
        ("Cost of a step by the size of the vocabulary", "vocabulary", "tokens"),
    )
    found = []
    for caption, key, unit in sweeps:
        if chosen := _sweep(plain, key):
            kept = _kept(chosen[0], key)
            points = [Point(cost[key], *cost["added_seconds"]) for cost in chosen]
            found.append((f"{caption} ({kept})", lines(points, unit)))
    if document["against"] and steps:
        rows = [
            _row(cost["name"], cost["against"], cost["floor"], differs=cost["against_differs"])
            for cost in steps
        ]
        found.append((f"Steps against those of {document['against']}", forest(rows)))
    for where, found_there in by_length(document).items():
        points = [Point(each["crowd"], *each["added_seconds"]) for each in found_there]
        found.append((f"Cost of the next token {where}", lines(points, "tokens")))
    for where, caption in (("offline", "an offline engine"), ("server", "a server")):
        rows = [
            _row(
                f"{each['figure']}, {each['crowd']} at once",
                each["overhead"],
                each["floor"],
                differs=each["measurable"],
            )
            for each in document["throughput"]
            if each["where"] == where
        ]
        if rows:
            found.append(
                (f"What the plugin adds in {caption}; to the right is worse", forest(rows))
            )
    return found


def _row(name: str, bounds: Sequence[float], floor: float, *, differs: bool) -> Row:
    low, middle, high = bounds
    return Row(name, low, middle, high, floor, differs)


def _sweep(steps: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return the largest group of loads in which nothing else but *key* varies."""
    others = [name for name in ("requests", "vocabulary", "share") if name != key]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cost in steps:
        groups.setdefault(tuple(cost[name] for name in others), []).append(cost)
    largest = max(groups.values(), key=len, default=[])
    return sorted(largest, key=lambda cost: float(cost[key])) if len(largest) > 1 else []


def _kept(cost: Mapping[str, Any], key: str) -> str:
    words = {
        "requests": f"{cost['requests']} requests",
        "vocabulary": f"{cost['vocabulary']} tokens",
        "share": f"{cost['share']:.0%} opted in",
    }
    return ", ".join(text for name, text in words.items() if name != key)


def lines(points: Sequence[Point], unit: str) -> Markup:
    """Draw seconds over a size, both axes logarithmic, with intervals."""
    height = 260
    positive = [value for p in points for value in (p.low, p.middle, p.high) if value > 0]
    if not positive:
        return Markup("")
    x = _scale([p.x for p in points], LEFT + 20, WIDTH - RIGHT - 20)
    y = _scale(positive, height - BOTTOM - ROOM, TOP + ROOM)
    least = min(positive)
    drawn = [_axes(height)]
    for tick in _ticks(positive):
        drawn.append(_line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid"))
        drawn.append(_text(LEFT - 8, y(tick) + 4, _seconds(tick), "end"))
    for point in points:
        drawn.append(_text(x(point.x), height - BOTTOM + 20, _size(point.x), "middle"))
        low, high = y(max(point.low, least)), y(max(point.high, least))
        drawn.append(_line(x(point.x), low, x(point.x), high, "interval"))
        drawn.append(_dot(x(point.x), y(max(point.middle, least)), "differs"))
    path = " ".join(f"{x(p.x):.1f},{y(max(p.middle, least)):.1f}" for p in points)
    drawn.insert(1, Markup('<polyline class="trend" points="{}"/>').format(path))
    drawn.append(_text((LEFT + WIDTH) / 2, height - 6, unit, "middle"))
    said = "; ".join(f"{_size(p.x)} {unit}: {_seconds(p.middle)}" for p in points)
    return _svg(height, drawn, said, "lines")


def forest(rows: Sequence[Row]) -> Markup:
    """Draw differences as parts of a whole, one row each, over the noise of the run."""
    left, pitch = 300, 24
    height = TOP + pitch * len(rows) + BOTTOM
    reach = max(0.02, *(max(abs(r.low), abs(r.high), r.floor) for r in rows))

    def x(value: float) -> float:
        return left + (value + reach) / (2 * reach) * (WIDTH - RIGHT - left)

    bottom = height - BOTTOM
    drawn = [_line(x(0), TOP, x(0), bottom, "axis")]
    for place, row in enumerate(rows):
        middle = TOP + pitch * (place + 0.5)
        drawn.append(
            Markup('<rect class="noise" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="14"/>').format(
                x(-row.floor), middle - 7, x(row.floor) - x(-row.floor)
            )
        )
        drawn.append(_line(x(row.low), middle, x(row.high), middle, "interval"))
        drawn.append(_dot(x(row.middle), middle, "differs" if row.differs else "same"))
        drawn.append(_text(left - 8, middle + 4, row.name, "end"))
    for value in (-reach, 0.0, reach):
        anchor = "middle" if not value else "start" if value < 0 else "end"
        drawn.append(_text(x(value), bottom + 18, f"{value:+.1%}" if value else "0", anchor))
    drawn.append(_text(x(0), height - 6, "grey: what the same thing differs from itself", "middle"))
    said = "; ".join(
        f"{r.name}: {r.middle:+.1%}" + ("" if r.differs else ", not measurable") for r in rows
    )
    return _svg(height, drawn, said, "forest")


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log(min(values)), math.log(max(values))
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return start + (math.log(value) - low) / span * (end - start)

    return place


def _ticks(values: Sequence[float]) -> list[float]:
    """Return the powers of ten between the least and the largest value, or more if they are few."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5)):
        found = [step * 10.0**power for power in powers for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) > 1:
            return found
    return [low, high]


def _size(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"  # noqa: PLR2004 - five digits


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _svg(height: float, drawn: Sequence[Markup], said: str, kind: str) -> Markup:
    return Markup(
        '<svg class="plot {}" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, WIDTH, height, said, Markup("").join(drawn))


def _axes(height: float) -> Markup:
    bottom = height - BOTTOM
    return _line(LEFT, TOP, LEFT, bottom, "axis") + _line(
        LEFT, bottom, WIDTH - RIGHT, bottom, "axis"
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        name, x1, y1, x2, y2
    )


def _dot(x: float, y: float, name: str) -> Markup:
    return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4"/>').format(name, x, y)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        x, y, anchor, escape(text)
    )
