"""`meshnn explain`: the cost of each gradient method on a model or on a mesh of given sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from meshnn.cli.options import Activation, AsJson, Seed, Ticks, size_list
from meshnn.cli.output import print_json, refuse
from meshnn.errors import MeshError
from meshnn.losses import loss_named
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training.settings import Settings
from meshnn.training.solvers import Choice, choose_solver

Family = Literal["mesh", "cascade"]


def explain(
    model: Annotated[Path | None, Argument(help="The model, a .mesh file; or give sizes.")] = None,
    inputs: Annotated[int | None, Option(help="Number of features; 2 by default.")] = None,
    hidden: Annotated[int | None, Option("--hidden", "-n", help="Number of hidden neurons; 15 by default.")] = None,
    outputs: Annotated[int | None, Option(help="Number of outputs; 2 by default.")] = None,
    layers: Annotated[str | None, Option(help="Sizes of the layers of a layered net, as 32,14,13,10.")] = None,
    family: Annotated[Family, Option(help="Kind of graph.")] = "mesh",
    density: Annotated[float | None, Option(help="Share of the allowed edges of a mesh to keep; 1 by default.")] = None,
    ticks: Ticks = None,
    batch_size: Annotated[int, Option("--batch-size", "-b", min=1, help="Samples per batch.")] = 64,
    activation: Activation = "relu",
    samples: Annotated[int | None, Option(min=1, help="Training rows, for which the solver of auto is shown.")] = None,
    jacobian: Annotated[bool, Option("--jacobian", help="Explain the Jacobian instead of the gradient.")] = False,
    measure: Annotated[bool, Option("--measure", help="Time the chosen method on this machine.")] = False,
    random_state: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show what each gradient method would cost, which one is taken and why.

    [bold]Examples[/bold]

      meshnn explain --inputs 32 --hidden 50 --outputs 10 --density 0.2 --ticks 3
      meshnn explain --layers 32,14,13,10
      meshnn explain iris.mesh --samples 105
      meshnn explain --inputs 2 --hidden 15 --outputs 2 --ticks 8 --batch-size 700
    """
    sizes = any(value is not None for value in (inputs, hidden, outputs, density)) or family != "mesh"
    given = sizes or layers is not None or ticks is not None or activation != "relu"
    refuse({
        "a model says it all: leave sizes, layers, density, ticks, family and activation out": model and given,
        "--layers: the layers say it all: leave sizes, density and family out": layers is not None and sizes,
        "--density: a cascade has all its edges: leave it out": family == "cascade" and density is not None,
    })  # fmt: skip
    loss: str | None = None
    if model is not None:
        mesh, loss = _from_file(model)
    else:
        i, h, o = (default if size is None else size for size, default in ((inputs, 2), (hidden, 15), (outputs, 2)))
        if layers is not None:
            topology = Topology.layered(size_list("--layers", layers))
        elif family == "cascade":
            topology = Topology.cascade(i, h, o)
        else:
            topology = Topology.mesh(i, h, o, density=1.0 if density is None else density, random_state=random_state)
        mesh = Mesh(topology, ticks, activation)
    explanation = mesh.explain(batch_size, jacobian=jacobian, measure=measure)
    choice = None if samples is None else _solver(mesh, samples, loss)
    if as_json:
        alternative = getattr(choice and choice.alternative, "name", None)
        rows = [
            {"method": cost.method, "exact": True, "forward_only": cost.forward_only, "bytes": cost.bytes,
             "multiply_adds": cost.multiply_adds, "estimated": cost.estimated}
            for cost in explanation.decision.costs
        ]  # fmt: skip
        print_json({
            "mesh": explanation.mesh, "batch_size": batch_size, "methods": rows, "chosen": explanation.chosen,
            "reason": explanation.reason, "seconds": explanation.seconds, "rate": explanation.rate,
            "edges": explanation.n_edges, "dead_edges": explanation.n_dead,
            "solver": choice and {"name": choice.solver.name, "reason": choice.reason, "alternative": alternative},
        })  # fmt: skip
        return
    print(explanation)  # plain text: no column is cut off, however narrow the terminal is
    if choice is not None:
        print(f"On {samples} samples the solver is {choice.solver.name}: {choice.reason}.")


def _from_file(path: Path) -> tuple[Mesh, str | None]:
    from meshnn.loading import load_fitted

    thing = load_fitted(path)
    if hasattr(thing, "learn_one"):
        raise MeshError(f"{path} learns from a stream: meshnn.load({str(path)!r}).explain() says what a sample costs")
    return (thing, None) if isinstance(thing, Mesh) else (thing.mesh_, thing.loss_)


def _solver(mesh: Mesh, samples: int, loss: str | None) -> Choice:
    """Return what `auto` would take; a net of unknown purpose counts as a classifier if it has several outputs."""
    n_outputs = mesh.topology.n_outputs
    found = loss_named(loss or ("squared_error" if n_outputs == 1 else "cross_entropy"))
    live, columns = len(mesh.live_parameters()), found.columns(n_outputs)
    return choose_solver(Settings(), live, samples, columns, noisy=found.classifies)
