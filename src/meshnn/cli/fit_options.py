"""Options of `meshnn fit`: what is asked for, in the words of the estimators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from meshnn.arguments import known, whole_number
from meshnn.errors import MeshError

__all__ = ["Task", "check_class_weight", "graph_of", "hidden_of", "solver_with", "structure_of", "task_of"]

Task = Literal["auto", "classify", "regress"]


def hidden_of(text: str) -> int | tuple[int, ...]:
    """A number of neurons, or sizes of layers."""
    sizes = [size.strip() for size in text.split(",")]
    if not all(re.fullmatch(r"-?[0-9]{1,18}", size) for size in sizes):
        raise MeshError(f"--hidden must be a whole number, or sizes of layers like 10,5, got {text!r}")
    if len(sizes) == 1:
        return whole_number("--hidden", int(sizes[0]), least=0)
    return tuple(whole_number("--hidden", int(size)) for size in sizes)


def check_class_weight(class_weight: str | None, task: str) -> None:
    """Refuse weights of classes where there are none."""
    if class_weight is not None and task == "regress":
        raise MeshError("--class-weight: the target is an amount; leave it out, or pass --task classify")


def solver_with(name: str, learning_rate: float) -> Any:
    """The solvers of a name, with this learning rate where they have one."""
    from meshnn.training.solvers import candidates

    found = candidates(name)
    for solver in found:
        if "learning_rate" in solver.get_params():
            solver.set_params(learning_rate=learning_rate)
    return list(found)


def structure_of(edges: int | None, grow: bool, hidden: int | tuple[int, ...]) -> dict[str, Any]:
    """How the graph is to change while it learns."""
    from meshnn.training import structure

    if not grow or isinstance(hidden, tuple):
        return {} if edges is None else {"structure": structure.Prune(to=edges)}
    policies: list[Any] = [structure.Grow(to=max(hidden, 1))]
    if edges is not None:
        policies.append(structure.Prune(to=edges, start="given", begin=0.5, end=0.9))
    return {"hidden": min(2, hidden), "structure": policies}


def task_of(task: Task, loss: str | None, class_weight: str | None) -> Task:
    """What loss and class weights leave of the choice."""
    if loss is not None:
        from meshnn.losses import LOSSES

        meant: Task = "classify" if LOSSES[known("--loss", loss, LOSSES)].classifies else "regress"
        if task not in ("auto", meant):
            raise MeshError(f"--loss {loss} is for --task {meant}; leave one of them out")
        task = meant
    if class_weight is not None and task == "regress":
        raise MeshError("--class-weight: there are no classes in a regression; leave it out")
    return task


def graph_of(path: Path | None, n_inputs: int, n_outputs: int, names: list[str]) -> Any:
    """The graph of a file, if it suits the table."""
    if path is None:
        return None
    from meshnn.topology.files import read_topology

    topology = read_topology(path, n_inputs, n_outputs)
    if (topology.n_inputs, topology.n_outputs) != (n_inputs, n_outputs):
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise MeshError(
            f"--topology: {path.name} has {topology.n_inputs} inputs and {topology.n_outputs} outputs, but the table "
            f"gives {n_inputs} features ({shown}) and needs {n_outputs} outputs"
        )
    return topology
