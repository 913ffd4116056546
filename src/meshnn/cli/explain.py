"""`meshnn explain`: the cost of each gradient method for a model or for a mesh of given sizes."""

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
    model: Annotated[
        Path | None, Argument(help="The model, a .mesh file. Without it, the options below define a mesh.")
    ] = None,
    inputs: Annotated[int | None, Option(help="Number of inputs (features). Default: 2.")] = None,
    hidden: Annotated[int | None, Option("--hidden", "-n", help="Number of hidden neurons. Default: 15.")] = None,
    outputs: Annotated[int | None, Option(help="Number of outputs. Default: 2.")] = None,
    layers: Annotated[
        str | None,
        Option(help="Layer sizes of a feed-forward network, from inputs to outputs, for example 32,14,13,10."),
    ] = None,
    family: Annotated[
        Family, Option(help="Kind of graph: mesh (hidden neurons in cycles) or cascade (no cycles).")
    ] = "mesh",
    density: Annotated[
        float | None,
        Option(help="Fraction of the allowed edges that a mesh has, drawn at random. Default: 1, all edges."),
    ] = None,
    ticks: Ticks = None,
    batch_size: Annotated[int, Option("--batch-size", "-b", min=1, help="Number of samples per batch.")] = 64,
    activation: Activation = "relu",
    samples: Annotated[
        int | None, Option(min=1, help="Number of training rows. Also show the solver that auto selects for them.")
    ] = None,
    jacobian: Annotated[
        bool, Option("--jacobian", help="Compare methods for the Jacobian instead of the gradient.")
    ] = False,
    measure: Annotated[
        bool, Option("--measure", help="Also measure the time of the selected method on this machine.")
    ] = False,
    random_state: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show the cost of each gradient method, which one is selected and why.

    [bold]Examples[/bold]

      meshnn explain --inputs 32 --hidden 50 --outputs 10 --density 0.2 --ticks 3
      meshnn explain --layers 32,14,13,10
      meshnn explain iris.mesh --samples 105
      meshnn explain --inputs 2 --hidden 15 --outputs 2 --ticks 8 --batch-size 700
    """
    sizes = any(value is not None for value in (inputs, hidden, outputs, density)) or family != "mesh"
    given = sizes or layers is not None or ticks is not None or activation != "relu"
    refuse({
        "a model file defines sizes, layers, density, ticks, family and activation; leave these options out":
        model and given,
        "--layers defines all sizes; leave --inputs, --hidden, --outputs, --density and --family out":
        layers is not None and sizes,
        "--density does not apply to a cascade, which has all its edges; leave it out":
        family == "cascade" and density is not None,
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
             "multiply_adds": cost.multiply_adds, "cost": cost.operations, "estimated": cost.estimated}
            for cost in explanation.decision.costs
        ]  # fmt: skip
        print_json({
            "mesh": explanation.mesh, "batch_size": batch_size, "methods": rows, "chosen": explanation.chosen,
            "reason": explanation.reason, "seconds": explanation.seconds, "rate": explanation.rate,
            "edges": explanation.n_edges, "dead_edges": explanation.n_dead,
            "solver": choice and {"name": choice.solver.name, "reason": choice.reason, "alternative": alternative},
        })  # fmt: skip
        return
    print(explanation)  # plain text: rich would cut columns off on a narrow terminal
    if choice is not None:
        print(f"Solver for {samples} samples: {choice.solver.name} ({choice.reason}).")


def _from_file(path: Path) -> tuple[Mesh, str | None]:
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    if hasattr(model, "learn_one"):
        raise MeshError(
            f"{path} is a streaming model; in Python, meshnn.load({str(path)!r}).explain() shows the cost per sample"
        )
    return (model, None) if isinstance(model, Mesh) else (model.mesh_, model.loss_)


def _solver(mesh: Mesh, samples: int, loss: str | None) -> Choice:
    """Return the choice of `auto`. Without a loss, a network with several outputs counts as a classifier."""
    n_outputs = mesh.topology.n_outputs
    found = loss_named(loss or ("squared_error" if n_outputs == 1 else "cross_entropy"))
    live, columns = len(mesh.live_parameters()), found.columns(n_outputs)
    return choose_solver(Settings(), live, samples, columns, noisy=found.classifies)
