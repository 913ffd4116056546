"""`report`: one HTML page with all tables and figures, from saved results only."""

from __future__ import annotations

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from meshnn.errors import MeshError
from meshnn.paper.experiment import Experiment, PaperTable
from meshnn.paper.registry import EXPERIMENTS
from meshnn.paper.results import planned_records, read_results, tables_of, write_text

__all__ = ["write_report"]

_STYLE = """
:root { color-scheme: light dark; --ink: #2b2b2b; --faint: #6b6b6b; --line: #d8d8d8; --back: #ffffff; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --faint: #a5a5a5; --line: #3a3a3a; --back: #16181b; --card: #1f2226; }
  figure img { background: #ffffff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p, li { max-width: 75ch; }
.faint, figcaption, .note { color: var(--faint); font-size: .9rem; }
nav a { margin-right: 1rem; }
.faint { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .4rem 0; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--faint); font-weight: 600; vertical-align: bottom; white-space: normal; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 1.2rem; margin: 1rem 0; }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: 8px; }
figure.wide { grid-column: 1 / -1; }
figure img { max-width: 100%; height: auto; display: block; margin: 0 auto .5rem; border-radius: 4px; }
"""


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
    versions = ", ".join(f"{escape(k)} {escape(str(v))}" for k, v in provenance["versions"].items() if v)
    machine = provenance["machine"]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mesh neural networks: the paper, reproduced</title>
<style>{_STYLE}</style>
</head>
<body><main>
<h1>Mesh neural networks: the paper, reproduced</h1>
<p>Every table and figure of <em>Formal derivation of Mesh Neural Networks with their Forward-Only gradient
Propagation</em>, with the paper's numbers beside those measured here, and what differs and why. Every number in the
tables comes from the <code>results.json</code> files beside it.</p>
<nav>{links}</nav>
<p class="faint">{escape(str(machine["processor"]))}, {machine["cores"]} cores; {versions}; revision
{escape(str(provenance.get("git") or "unknown"))}</p>
{body}
</main></body></html>
"""


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
