"""Write `report.md` with tables and figures from saved records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshnn.cli.output import versions
from meshnn.errors import MeshError
from meshnn.files import explained, write_whole
from meshnn.memory import format_bytes
from scaling.analysis import curves, disagreements, winners
from scaling.figures import draw_sweep
from scaling.runner import missing_peers, processor
from scaling.study import CONTESTANTS, Sweep, points_of

__all__ = ["write_report"]

Record = dict[str, Any]
_HEADINGS = ("", "fastest", "meshnn auto", "fastest peer", "peer / auto", "forward-only / backprop")


def write_report(chosen: Sequence[Sweep], records: dict[str, Record], out: Path, pictures: Path | None = None) -> str:
    """Draw all figures into `pictures` (default: the folder of the report), write `report.md` and return its text."""
    pictures = pictures or out
    with explained("write to", str(pictures)):
        pictures.mkdir(parents=True, exist_ok=True)
    kinds = ("svg", "png") if pictures == out else ("svg",)
    for sweep in chosen:
        draw_sweep(sweep, curves(sweep, records), pictures, kinds)
    text = f"# Scaling study\n\n{markdown(chosen, records, os.path.relpath(pictures, out))}"
    write_whole(out / "report.md", [text.encode()])
    return text


def markdown(chosen: Sequence[Sweep], records: dict[str, Record], pictures: str = ".") -> str:
    """Return tables and figures as Markdown; `pictures` is the folder of the figures, relative to the page."""
    library = ", ".join(f"{name} {number}" for name, number in versions().items() if number)
    lines = [f"{processor()}, one thread. {library}.", ""]
    absent = missing_peers([point.contestant for point in points_of(tuple(chosen))])
    lines += [f"**Not measured: {CONTESTANTS[name]} ({how}).**" for name, how in absent.items()]
    for sweep in chosen:
        wrong = disagreements(sweep, records)
        if wrong:
            raise MeshError(
                "contestants do not compute the same loss, so the timings mean nothing: " + "; ".join(wrong)
            )
        lines += [f"## {sweep.title}", "", f"![{sweep.title}]({pictures}/scaling-{sweep.name}.svg)", ""]
        headings = (sweep.axis, *_HEADINGS[1:])
        lines += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
        lines += ["| " + " | ".join(row) + " |" for row in winners(sweep, records)]
        lines += ["", *_ends(sweep, records)]
    return "\n".join(lines).rstrip() + "\n"


def _ends(sweep: Sweep, records: dict[str, Record]) -> list[str]:
    """Return where and why contestants stopped."""
    notes: list[str] = []
    for contestant in sweep.contestants:
        for point in sweep.points():
            record = records.get(point.key, {})
            status = record.get("status")
            if point.contestant != contestant or status not in ("did not fit", "too slow", "failed"):
                continue
            note = record.get("note", "")
            if "bytes" in record:
                note += f"; it is predicted to need {format_bytes(record['bytes'])}"
            notes.append(f"{CONTESTANTS[contestant]} {status} at {point.x:,.10g} ({note}).")
            break
    return [" ".join(notes), ""] if notes else []
