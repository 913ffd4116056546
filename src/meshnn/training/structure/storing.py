"""Policies as trees, and back: by name, since nothing in a file may run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from meshnn.arguments import whole_number
from meshnn.errors import MeshError
from meshnn.storage import Tree
from meshnn.topology import Topology
from meshnn.training.structure.policies import Grow, Policy, Prune, Regrow, Sparsify
from meshnn.training.structure.runtime import as_policies

__all__ = ["Lost", "graph_from_tree", "graph_to_tree", "structure_from_tree", "structure_to_tree"]

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Prune, Regrow, Sparsify, Grow)}


@dataclass(frozen=True)
class Lost(Policy):
    """Stands for a policy that a file could not hold; a fit with it is refused."""

    name: str

    @property
    def refusal(self) -> str:  # type: ignore[override]
        """What to do about it."""
        return (
            f"the model was trained with {self.name}, which its file does not hold; "
            "set_params(structure=...) to use it again, or structure=None to fit a graph that stays"
        )


def structure_to_tree(structure: Any) -> Tree:
    """What `structure=` may be, as plain values and arrays."""
    return {
        "single": isinstance(structure, Policy),
        "policies": [_policy_to_tree(policy) for policy in as_policies(structure, to_use=False)],
    }


def _policy_to_tree(policy: Policy) -> Tree:
    if KINDS.get(type(policy).__name__) is not type(policy):
        return {"lost": policy.name if isinstance(policy, Lost) else type(policy).__name__}
    found: Tree = {"kind": type(policy).__name__}
    for field in fields(policy):  # type: ignore[arg-type]  # all of KINDS are dataclasses
        value = getattr(policy, field.name)
        if isinstance(value, Topology):
            value = graph_to_tree(value)
        elif field.name == "allowed" and value is not None:
            value = np.asarray(value)
        found[field.name] = value.item() if isinstance(value, np.generic) else value
    return found


def structure_from_tree(tree: Tree) -> Any:
    """The inverse, for trees that may come from anywhere."""
    policies = [_policy_from_tree(item) for item in tree["policies"]]
    if tree["single"]:
        return policies[0]
    return policies or None


def _policy_from_tree(tree: Tree) -> Policy:
    if "lost" in tree:
        return Lost(str(tree["lost"])[:100])
    kind = KINDS.get(tree["kind"])
    if kind is None:  # of a newer version
        return Lost(str(tree["kind"])[:100])
    given = {field.name: tree[field.name] for field in fields(kind) if field.name in tree}
    if isinstance(given.get("allowed"), dict):
        given["allowed"] = graph_from_tree(given["allowed"])
    policy: Policy = kind(**given)
    return policy


def graph_to_tree(graph: Topology) -> Tree:
    """A graph as plain values and arrays."""
    return {
        "n_inputs": graph.n_inputs,
        "n_hidden": graph.n_hidden,
        "n_outputs": graph.n_outputs,
        "bias": graph.bias,
        "src": graph.src.astype(np.int64),
        "dst": graph.dst.astype(np.int64),
    }


def graph_from_tree(tree: Tree) -> Topology:
    """The inverse, for trees that may come from anywhere."""
    names = ("n_inputs", "n_hidden", "n_outputs")
    n_inputs, n_hidden, n_outputs = (whole_number(name, tree[name], least=0) for name in names)
    src, dst = tree["src"], tree["dst"]
    if src.shape != dst.shape:
        raise MeshError(f"a graph has {src.shape} sources and {dst.shape} targets")
    return Topology(n_inputs, n_hidden, n_outputs, np.stack([src, dst], axis=1), bias=tree["bias"])
