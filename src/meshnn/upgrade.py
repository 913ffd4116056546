"""Trees of files that older versions wrote."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["tree_of_version_1"]

#: Where an array of version 1 belongs now, by its name; the first pattern that fits counts.
_MOVED = (
    (r"(mesh\.)?activations", r"\1kinds"),
    (r"stream\.(.*)", r"stream.memory.\1"),
    (r"training\.solver\.safe_(.*)", r"training.state.solver.safe.\1"),
    (r"training\.solver\.(weights|first|second)", r"training.state.solver.now.\1"),
    (r"training\.(.*)", r"training.state.\1"),
)


def tree_of_version_1(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """One tree of a header and arrays; any error if they make no sense. The header is changed."""
    for name, array in arrays.items():
        place = next((re.sub(old, new, name) for old, new in _MOVED if re.fullmatch(old, name)), name)
        *path, last = place.split(".")
        inside = header
        for key in path:
            inside = inside.setdefault(key, {})
        inside[last] = array
    if header.get("kind") == "mesh":
        return header
    header["history"]["note"] = header.pop("notes")
    header["loss"] = "cross_entropy" if header.get("kind") == "classifier" else "squared_error"  # there was no choice
    if "training" in header:
        _upgrade_state(header["training"]["state"])
    if header["solver"][0] == "sgd":
        _upgrade_velocities(header)
    return header


def _upgrade_state(state: dict[str, Any]) -> None:
    state["history"]["note"] = state.pop("notes")
    state.setdefault("kept", None)
    state.setdefault("structure", None)
    state["numbers"] = {name: _number(value) for name, value in state["numbers"].items()}
    solver = state["solver"]
    if "safe_loss" in solver:
        solver["safe_loss"] = _number(solver["safe_loss"])
    else:
        solver["errors"] = [_number(value) for value in solver["errors"]]
        solver["last"] = solver["last"] and [_number(value) for value in solver["last"]]


def _upgrade_velocities(header: dict[str, Any]) -> None:
    """They were steps, rates included; now they are sums of gradients. At the rate there was, both lead to one step."""
    memory = header["stream"].get("memory")
    if memory is not None:
        _as_gradients([memory], header["parameters"]["learning_rate"] * memory["factor"])
    if "training" in header:
        state = header["training"]["state"]
        rates = [rate for rate in state["history"]["learning_rate"].tolist() if rate > 0]
        _as_gradients([state["solver"]["now"], state["solver"]["safe"]], rates[-1] if rates else 0.0)


def _as_gradients(moments: list[dict[str, Any]], rate: float) -> None:
    for held in moments:
        velocity = held["first"]
        held["first"] = velocity / -rate if rate > 0 else velocity * 0


def _number(value: Any) -> Any:
    """Infinity and NaN were texts."""
    return float(value) if value in ("nan", "inf", "-inf") else value
