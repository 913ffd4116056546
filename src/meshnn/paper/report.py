"""`report`: one HTML page with all tables and figures, from saved results."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from meshnn.errors import MeshError
from meshnn.files import write_whole
from meshnn.paper.experiment import Experiment, Json
from meshnn.paper.runner import EXPERIMENTS, planned_records, read_results, tables_of


def write_report(out: Path) -> Path:
    """Write `report.html` from the results in a folder, and return its path."""
    sections: list[Json] = []
    first: Json = {}
    for experiment in EXPERIMENTS.values():
        folders = (out / experiment.name, out / f"{experiment.name}-paper")
        stored = {folder: read_results(folder / "results.json") for folder in folders
                  if (folder / "results.json").exists()}  # fmt: skip
        if stored:
            protocols = [_protocol(experiment, folder, one, len(stored) > 1) for folder, one in stored.items()]
            sections.append({"experiment": experiment, "protocols": protocols})
            first = first or next(iter(stored.values()))
    if not sections:
        known = ", ".join(EXPERIMENTS)
        raise MeshError(f"{out} holds no results; run meshnn reproduce NAME --out {out} first, NAME one of {known}")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (files("meshnn.paper") / "report.html").read_text()
    )
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items() if version)
    page = template.render(
        sections=sections, machine=first["machine"], versions=versions, revision=first.get("git") or "unknown"
    )
    path = out / "report.html"
    write_whole(path, [page.encode()])
    return path


def _protocol(experiment: Experiment, folder: Path, stored: Json, both: bool) -> Json:
    """Return the data of one results file for the template."""
    ours, config = folder.name == experiment.name, stored["config"]
    heading = "Our protocol" if ours else "The paper's protocol"
    shown: Json = {"heading": heading if both or not ours else "", "unfinished": None, "folder": folder.name}
    records = planned_records(stored)
    if records is None:
        return shown | {"unfinished": len(stored["trials"])}
    seconds = sum(record["seconds"] for record in records)
    note = f"{len(stored['trials'])} trials, {seconds:.0f} s of computation; seed {config['seed']}"
    if config.get("quick"):
        note += "; a quick run with fewer trials" + (experiment.quick_note and f": {experiment.quick_note}")
    return shown | {"tables": tables_of(experiment, records, folder), "note": note, "figures": _figures(folder)}


def _figures(folder: Path) -> list[Json]:
    """Return the figures in a folder."""
    shown = []
    try:
        for item in json.loads((folder / "figures.json").read_text()):
            path = folder / Path(item["file"]).name
            source = f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode()}"
            wide = not path.name.startswith(("regions", "learning-", "adjacency"))
            shown.append({"source": source, "caption": str(item["caption"]), "wide": wide})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MeshError(f"cannot read the figures in {folder} ({error}); run {folder.name} again") from None
    return shown
