"""`meshnn demo`: train a mesh on the spirals and say what happened."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from meshnn.arguments import whole_number
from meshnn.cli.output import collect_warnings, say_notes
from meshnn.errors import TrainingInterrupted
from meshnn.mesh import Mesh
from meshnn.tables.synthetic import spirals
from meshnn.training import HistoryRow

__all__ = ["demo"]


def demo(
    hidden: Annotated[int, typer.Option("--hidden", "-n", help="Hidden neurons.")] = 10,
    iterations: Annotated[
        int | None, typer.Option("--iterations", help="At most; by default enough.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of data and weights.")] = 0,
) -> None:
    """Train a mesh on the two spirals with exact derivatives computed forward.

    [bold]Example[/bold]

      meshnn demo --hidden 5
    """
    from meshnn.estimators import MeshClassifier

    console = Console()
    whole_number("--hidden", hidden, least=0)
    X, y = spirals(1000, random_state=whole_number("--seed", seed, least=0))
    train, test = slice(0, 700), slice(700, None)  # shuffled and balanced, so a plain cut is a fair split
    console.print("Two spirals, 700 points to learn from, 300 to test on.", highlight=False)
    shown: list[tuple[HistoryRow, float]] = []
    epochs: int | str = "auto" if iterations is None else whole_number("--iterations", iterations)
    model = MeshClassifier(hidden, ticks=3, max_epochs=epochs, verbose=1, random_state=seed)

    def watch(row: HistoryRow, mesh: Mesh) -> None:
        if not shown or row.epoch >= 2 * shown[-1][0].epoch:
            shown.append((row, model.score(X[test], y[test])))

    caught: list[Warning] = []
    interrupted = False
    with collect_warnings(caught):
        try:
            model.set_params(callbacks=watch).fit(X[train], y[train])
        except TrainingInterrupted as stop:
            interrupted = True
            say_notes([str(stop)])
    say_notes([str(warning).replace("max_epochs", "--iterations") for warning in caught])
    if not len(model.history_):
        raise typer.Exit(130)
    if not shown or shown[-1][0].epoch != model.history_[-1].epoch:
        shown.append((model.history_[-1], model.score(X[test], y[test])))
    headings = (
        Column(name, justify="right") for name in ("iteration", "loss", "train accuracy", "test accuracy", "seconds")
    )
    table = Table(*headings, title=f"{model.mesh_!r}, solver {model.solver_}", title_justify="left")
    for row, unseen in shown:
        table.add_row(str(row.epoch), f"{row.loss:.5f}", f"{row.accuracy:.3f}", f"{unseen:.3f}", f"{row.seconds:.2f}")
    console.print(table)
    console.print(
        f"Test accuracy {model.score(X[test], y[test]):.3f} with {hidden} hidden neurons. "
        "The paper reports 0.75 with 5, 0.95 with 7, 0.94 with 10.",
        highlight=False,
    )
    if interrupted:
        raise typer.Exit(130)
