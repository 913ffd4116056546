"""`meshnn reproduce`: the experiments of the paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from meshnn.arguments import known, whole_number
from meshnn.cli.output import print_json, progress
from meshnn.errors import MeshError


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="equivalence, synthetic, spirals-hidden, iris, images, connections; report; or all of them: all.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the results; by default results/paper, or results/quick.", show_default=False
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Number of trials; by default as in the paper.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of data, splits and weights.")] = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Parallel trials; by default one per core.")] = None,
    protocol: Annotated[
        Literal["ours", "paper"] | None,
        typer.Option("--protocol", help="Protocol; ours by default, and `all` runs both where that is quick."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run few trials, as a preview.")] = False,
    backend: Annotated[
        str,
        typer.Option("--backend", help="Backend of joblib: loky, dask or ray; dask:ADDRESS for an existing cluster."),
    ] = "loky",
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with the image files; by default $MESHNN_DATA, the cache, or a download."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
) -> None:
    """Run the paper's experiments, and make tables and figures from the saved results.

    Every trial is saved when it is done; a second run only does missing ones.

    [bold]Examples[/bold]

      meshnn reproduce synthetic --quick

      meshnn reproduce images --data ~/mnist-and-fashion --jobs 4

      meshnn reproduce all --out results/paper
    """
    from meshnn.paper.experiment import TrialOptions
    from meshnn.paper.report import write_report
    from meshnn.paper.runner import EXPERIMENTS, run

    known("experiment", name, (*EXPERIMENTS, "report", "all"))
    if trials is not None:
        whole_number("--trials", trials)
    whole_number("--seed", seed, least=0, most=2**31)
    jobs = whole_number("--jobs", jobs) if jobs is not None else os.cpu_count() or 1
    out = out or Path("results/quick" if quick else "results/paper")
    if out.exists() and not out.is_dir():
        raise MeshError(f"--out: {out} is a file; name a folder")
    chosen = [] if name == "report" else list(EXPERIMENTS) if name == "all" else [name]
    printed, failed = {}, []
    for one in chosen:
        # others have the paper's protocol as a column, or take hours
        both = protocol is None and name == "all" and one in ("synthetic", "iris")
        for way in ("ours", "paper") if both else (protocol or "ours",):
            options = TrialOptions(trials=trials or 0, seed=seed, protocol=way, quick=quick, data=data)
            try:
                with progress(one) as tell:
                    outcome = run(EXPERIMENTS[one], options, out, jobs, backend, tell)
            except KeyboardInterrupt:
                _say("meshnn: interrupted; the trials that were done are saved, run the same command to go on", "red")
                raise typer.Exit(130) from None
            except MeshError as error:
                if name != "all":
                    raise
                failed.append(f"{one}: {error}")
                _say(f"meshnn: {one}: {error}", "red")
                continue
            printed[outcome.folder.name] = [table._asdict() for table in outcome.tables]
            if not as_json:
                _show(outcome.tables)
                _say(f"{outcome.folder / 'results.json'}, table.md, {len(outcome.figures)} figures")
    if as_json:
        print_json(printed)
    if name in ("report", "all") and (name == "report" or printed):
        path = write_report(out)
        typer.echo(f"report written to {path.resolve()}", err=as_json)
    if failed:
        raise typer.Exit(2)


def _say(text: str, style: str | None = None) -> None:
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _show(tables: Any) -> None:
    console = Console(width=None if Console().is_terminal else 160)  # lines in a file are not wrapped
    for rows in tables:
        table = Table(*rows.headings, title=rows.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for row in rows.rows:
            table.add_row(*row)
        console.print(table)
        for note in rows.notes:
            console.print(note, highlight=False)
