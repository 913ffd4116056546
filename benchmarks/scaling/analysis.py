"""Evaluate the records: curves, and the fastest program on every net."""

from __future__ import annotations

from typing import Any, NamedTuple

from scaling.study import CONTESTANTS, OURS, Point, Sweep

__all__ = ["Curve", "curves", "disagreements", "winners"]

Record = dict[str, Any]


class Curve(NamedTuple):
    """The results of one contestant along a sweep; None for missing points."""

    contestant: str
    x: list[float]
    seconds: list[float | None]
    memory: list[float | None]
    predicted_memory: list[float | None]
    status: list[str]


def curves(sweep: Sweep, records: dict[str, Record]) -> list[Curve]:
    """Return the curves of the contestants that have results."""
    found = []
    for contestant in sweep.contestants:
        points = [p for p in sweep.points() if p.contestant == contestant]
        rows = [records.get(p.key, {"status": "missing"}) for p in points]
        curve = Curve(
            contestant, [p.x for p in points], [r.get("seconds") for r in rows], [r.get("memory") for r in rows],
            [r.get("bytes") for r in rows], [r["status"] for r in rows],
        )  # fmt: skip
        if set(curve.status) != {"missing"}:
            found.append(curve)
    return found


def winners(sweep: Sweep, records: dict[str, Record]) -> list[tuple[str, ...]]:
    """Return one row per net: the fastest, the method of `auto` and its time, and forward-only divided by backprop."""
    rows: list[tuple[str, ...]] = []
    for x, graph, ticks, batch in sweep.nets:
        here = {c: records.get(Point(sweep.name, x, graph, ticks, batch, c).key, {}) for c in sweep.contestants}
        times = {c: float(r["seconds"]) for c, r in here.items() if r.get("status") == "done"}
        if not times:
            continue
        fastest = min(times, key=lambda c: times[c])
        others = {c: s for c, s in times.items() if c not in OURS}
        peer = min(others, key=lambda c: others[c]) if others else None
        chosen = next((str(r["chosen"]) for r in here.values() if "chosen" in r), None)
        auto = times.get(chosen) if chosen else None
        forward = min((times[c] for c in ("factored", "influence") if c in times), default=None)
        back = times.get("adjoint")
        rows.append((
            f"{x:,.10g}", CONTESTANTS[fastest], f"{chosen}, {duration(auto)}" if auto else "-",
            f"{CONTESTANTS[peer]}, {duration(others[peer])}" if peer else "-",
            _times(others[peer] / auto) if peer and auto else "-",
            _times(forward / back) if forward and back else "-",
        ))  # fmt: skip
    return rows


def disagreements(sweep: Sweep, records: dict[str, Record], tolerance: float = 1e-3) -> list[str]:
    """Return the nets on which contestants compute different losses, so that their timings are not comparable."""
    found = []
    for x, graph, ticks, batch in sweep.nets:
        here = {c: records.get(Point(sweep.name, x, graph, ticks, batch, c).key, {}) for c in sweep.contestants}
        losses = {c: float(r["loss"]) for c, r in here.items() if r.get("loss") is not None}
        if losses and max(losses.values()) - min(losses.values()) > tolerance * max(1.0, abs(min(losses.values()))):
            found.append(f"{sweep.name} {x:g}: " + ", ".join(f"{c} {v:.6g}" for c, v in losses.items()))
    return found


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(0.0000123), duration(0.0123), duration(12.3)
    ('12 us', '12 ms', '12 s')
    """
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_short(seconds * factor)} {unit}"
    return f"{_short(seconds)} s"


def _times(ratio: float) -> str:
    """Format a ratio with two digits, or all digits of a large one.

    >>> _times(0.254), _times(3.0), _times(368.2)
    ('0.25', '3', '368')
    """
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
