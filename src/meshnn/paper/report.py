"""`report`: one HTML page with all tables and figures, from saved results only."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from meshnn.errors import MeshError
from meshnn.paper.experiment import Experiment, PaperTable
from meshnn.paper.registry import EXPERIMENTS
from meshnn.paper.results import planned_records, read_results, tables_of, write_text

__all__ = ["write_report"]


def write_report(out: Path) -> Path:
    """Write `report.html` from the results in a folder, and return its path."""
    sections, links, provenance = list[str](), list[str](), dict[str, Any]()
    for experiment in EXPERIMENTS.values():
        places = {"ours": out / experiment.name, "paper": out / f"{experiment.name}-paper"}
        files = {protocol: folder / "results.json" for protocol, folder in places.items()}
        if found := {protocol: (path.parent, read_results(path)) for protocol, path in files.items() if path.exists()}:
            links.append(f'<a href="#{experiment.name}">{escape(experiment.title)}</a>')
            sections.append(_section(experiment, found))
            provenance = provenance or next(iter(found.values()))[1]
    if not provenance:
        known = ", ".join(EXPERIMENTS)
        raise MeshError(f"{out} holds no results; run meshnn reproduce NAME --out {out} first, NAME one of {known}")
    path = out / "report.html"
    write_text(path, _page("".join(sections), " ".join(links), provenance))
    return path


def _page(body: str, links: str, provenance: dict[str, Any]) -> str:
    machine = provenance["machine"]
    facts = {
        "machine": f"{machine['processor']}, {machine['cores']} cores",
        "versions": ", ".join(f"{name} {version}" for name, version in provenance["versions"].items() if version),
        "revision": str(provenance.get("git") or "unknown"),
    }
    page = Template((files("meshnn.paper") / "report.html").read_text())
    return page.substitute({name: escape(text) for name, text in facts.items()}, body=body, links=links)


def _section(experiment: Experiment, found: dict[str, tuple[Path, dict[str, Any]]]) -> str:
    parts = [f'<section id="{experiment.name}"><h2>{escape(experiment.title)}</h2>']
    parts.append("<p>The full experiment:</p><ul>")
    parts += [f"<li>{escape(remark)}</li>" for remark in experiment.remarks]
    parts.append("</ul>")
    for protocol, (folder, stored) in found.items():
        config = stored["config"]
        if len(found) > 1 or protocol == "paper":
            heading = "Our protocol" if protocol == "ours" else "The protocol of the paper, as measured"
            parts.append(f"<h3>{heading}</h3>")
        records = planned_records(stored)
        if records is None:
            there = len(stored["trials"])
            parts.append(f'<p class="note">Unfinished: {there} trials are there; run it again to go on.</p>')
            continue
        parts += [_table(rows) for rows in tables_of(experiment, records, folder)]
        total, quick = sum(record["seconds"] for record in records), ""
        if config.get("quick"):
            quick = "; a quick run with fewer trials" + (experiment.quick_note and f": {experiment.quick_note}")
        what = f"{len(stored['trials'])} trials, {total:.0f} s of computing; seed {config['seed']}{quick}"
        parts.append(f'<p class="note">{what}. <code>{escape(folder.name)}/results.json</code></p>')
        parts.append(_figures(folder))
    return "".join(parts) + "</section>"


def _table(rows: PaperTable) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in rows.headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in rows.notes)
    caption = f"<caption>{escape(rows.title)}</caption>"
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>{notes}'


def _figures(folder: Path) -> str:
    missing = '<p class="note">Figures are missing; run it again to draw them.</p>'
    try:
        found = json.loads((folder / "figures.json").read_text())
        listed = {folder / Path(item["file"]).name: escape(item["caption"]) for item in found}
    except (OSError, ValueError, KeyError, TypeError):
        return missing
    shown = []
    for path, caption in listed.items():
        kind = path.suffix.removeprefix(".")
        if kind in ("gif", "png") and path.is_file():
            data = base64.b64encode(path.read_bytes()).decode()
            wide = "" if path.name.startswith(("regions", "learning-", "adjacency")) else ' class="wide"'
            image = f'<img src="data:image/{kind};base64,{data}" alt="{caption}">'
            shown.append(f"<figure{wide}>{image}<figcaption>{caption}</figcaption></figure>")
    return f'<div class="figures">{"".join(shown)}</div>' + (missing if len(shown) < len(listed) else "")
