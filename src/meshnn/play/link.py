"""`LinkState`: the validated contents of a link of the page. Links are untrusted input."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from meshnn.arguments import known, real_number, switch, whole_number
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.play.data import SETS
from meshnn.play.edits import Sketch
from meshnn.play.learners import SOLVERS
from meshnn.play.limits import LIMITS

__all__ = ["LinkState", "checked_pace", "checked_state", "learning_rate"]


class LinkState(NamedTuple):
    """A net, its solver and its samples."""

    sketch: Sketch
    ticks: int
    solver: str
    rate: float
    budget: int
    pace: int
    seed: int
    done: int
    name: str  # name of a data set, or "table"
    table: dict[str, Any] | None  # in the format of the page


def checked_state(given: Any) -> LinkState:
    """Return the state in a link; raise a `MeshError` if it is invalid."""
    try:
        return _read(given)
    except MeshError as error:
        raise MeshError(f"the link holds no valid net ({error}); copy the whole link again") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
        raise MeshError("the link is damaged and holds no net; copy the whole link again") from None


def _read(given: Any) -> LinkState:
    version = whole_number("version", given["v"])
    if version != 1:
        raise MeshError(f"it has version {version}, expected 1; upgrade meshnn")
    table = given["data"].get("table")
    return LinkState(
        sketch=_sketch(given),
        ticks=whole_number("ticks", given["ticks"], most=LIMITS.ticks),
        solver=known("solver", given["solver"], SOLVERS),
        rate=learning_rate(given["rate"]),
        budget=whole_number("budget", given["budget"], most=LIMITS.edges),
        pace=checked_pace(given["pace"]),
        seed=whole_number("seed", given["seed"], least=0, most=2**32 - 1),
        done=whole_number("done", given["done"], least=0, most=2**50),
        name=known("set", given["data"]["set"], SETS) if table is None else "table",
        table=table,
    )


def _sketch(given: Any) -> Sketch:
    """Return the graph in a link with its weights."""
    inputs, outputs = (whole_number(name, given[name], least=1, most=1000) for name in ("inputs", "outputs"))
    hidden = {str(name): known("activation", kind, ACTIVATIONS) for name, kind in given["hidden"]}
    if len(hidden) != len(given["hidden"]) or not all(re.fullmatch("h[0-9]{1,8}", name) for name in hidden):
        raise MeshError("hidden neurons must have unique names such as h0")
    sketch = Sketch(inputs, outputs, switch("bias", given["bias"]), hidden, {})
    names, edges = sketch.names, {}
    for src, dst, weight in given["edges"]:
        ends = [whole_number("neuron", end, least=0, most=len(names) - 1) for end in (src, dst)]
        edges[names[ends[0]], names[ends[1]]] = real_number("weight", weight, "a finite number", math.isfinite)
    if len(edges) != len(given["edges"]):
        raise MeshError("an edge is given twice")
    return sketch.with_edges(edges)


def learning_rate(rate: Any) -> float:
    """Check a learning rate from the page."""
    return real_number("rate", rate, "a number from 0.00001 to 10", lambda v: 1e-5 <= v <= 10)


def checked_pace(pace: Any) -> int:
    """Check a pace from the page."""
    found = whole_number("pace", pace, least=0)
    if found not in LIMITS.paces:
        raise MeshError(f"pace must be one of {', '.join(map(str, LIMITS.paces))}, got {found}")
    return found
