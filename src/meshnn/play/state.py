"""The whole state of a bench as plain JSON: what a link of the page holds, and nothing in it is believed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from meshnn.arguments import known, real_number, switch, whole_number
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.play.data import SETS
from meshnn.play.edits import MOST_EDGES, MOST_HIDDEN, MOST_TICKS, Drawing
from meshnn.play.learners import SOLVERS

__all__ = ["PACES", "State", "checked"]

#: Epochs, or samples of a stream, a second; 0 is as many as go.
PACES = (0, 1, 10, 100, 1000)
VERSION = 1


@dataclass(frozen=True)
class State:
    """What a bench goes on from."""

    drawing: Drawing
    ticks: int
    solver: str
    rate: float
    budget: int
    pace: int
    seed: int
    done: int
    name: str  # of a set, or "table"
    table: dict[str, Any] = field(default_factory=dict)


def checked(given: Any) -> State:
    """A state that came from a link; a `MeshError` in one sentence if it is none."""
    try:
        return _read(given)
    except MeshError as error:
        raise MeshError(f"the link does not hold a net that makes sense ({error}); copy it again, whole") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
        raise MeshError("the link is damaged: it does not hold a net; copy it again, whole") from None


def _read(given: Any) -> State:
    version = whole_number("version", given["v"])
    if version != VERSION:
        raise MeshError(f"it is of version {version}, expected {VERSION}; upgrade meshnn")
    inputs, outputs = (whole_number(name, given[name], least=1, most=1000) for name in ("inputs", "outputs"))
    hidden = {str(name): known("activation", kind, ACTIVATIONS) for name, kind in given["hidden"]}
    if len(hidden) != len(given["hidden"]) or len(hidden) > MOST_HIDDEN or not all(map(_is_hidden, hidden)):
        raise MeshError(f"hidden neurons must have names like h0, each one of its own, and be at most {MOST_HIDDEN}")
    empty = Drawing(inputs, outputs, switch("bias", given["bias"]), hidden, {})
    names, edges = empty.names, {}
    if len(given["edges"]) > MOST_EDGES:
        raise MeshError(f"there are {len(given['edges']):,} edges, expected at most {MOST_EDGES:,}")
    for src, dst, weight in given["edges"]:
        ends = [whole_number("neuron", end, least=0, most=len(names) - 1) for end in (src, dst)]
        edges[names[ends[0]], names[ends[1]]] = real_number("weight", weight, "a finite number", math.isfinite)
    if len(edges) != len(given["edges"]):
        raise MeshError("an edge is given twice")
    data = given["data"]
    name, table = ("table", _table(data["table"])) if "table" in data else (known("set", data["set"], SETS), {})
    return State(
        drawing=Drawing(inputs, outputs, empty.bias, hidden, edges),
        ticks=whole_number("ticks", given["ticks"], most=MOST_TICKS),
        solver=known("solver", given["solver"], SOLVERS),
        rate=real_number("rate", given["rate"], "a number from 0.00001 to 10", lambda v: 1e-5 <= v <= 10),
        budget=whole_number("budget", given["budget"], most=MOST_EDGES),
        pace=known_pace(given["pace"]),
        seed=whole_number("seed", given["seed"], least=0, most=2**32 - 1),
        done=whole_number("done", given["done"], least=0, most=2**50),
        name=name,
        table=table,
    )


def known_pace(pace: Any) -> int:
    """One of the paces there are."""
    found = whole_number("pace", pace, least=0)
    if found not in PACES:
        raise MeshError(f"pace must be one of {', '.join(map(str, PACES))}, got {found}")
    return found


def _is_hidden(name: str) -> bool:
    return name[:1] == "h" and name[1:].isascii() and name[1:].isdigit() and len(name) < 10


def _table(given: Any) -> dict[str, Any]:
    texts = {name: given[name] for name in ("name", "text", "target")}
    drop = given["drop"]
    if not all(isinstance(text, str) for text in (*texts.values(), *drop)) or not isinstance(drop, list):
        raise MeshError("its table is not made of texts")
    return texts | {"impute": switch("impute", given["impute"]), "drop": drop}
