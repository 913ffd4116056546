"""`Structure` runs the policies of a fit; conversion of policies to trees that a file can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np

from meshnn.arguments import switch
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.samples import Samples
from meshnn.training.settings import Settings
from meshnn.training.solvers import Change
from meshnn.training.state import RandomState, from_tree, to_tree
from meshnn.training.structure.graph import Allowed, View, apply_edit
from meshnn.training.structure.policies import Grow, Policy, Prune, Regrow, Sparsify

#: Policies that a file can hold, by name, since code in a file is never executed.
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Prune, Regrow, Sparsify, Grow)}


def as_policies(structure: Any, to_use: bool = True) -> tuple[Policy, ...]:
    """Return policies as a tuple; None, one policy or several may be passed."""
    if structure is None:
        return ()
    found = [structure] if isinstance(structure, Policy) else structure
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(p, Policy) for p in found):
        names = ", ".join(KINDS)
        raise MeshError(f"structure must be a policy ({names}) or a list of policies, got {type(structure).__name__}")
    if to_use and (refusal := next((policy.refusal for policy in found if policy.refusal), "")):
        raise MeshError(refusal)
    return tuple(found)


def _allowed(policies: tuple[Policy, ...], topology: Topology) -> Allowed:
    return Allowed(topology, next((policy.allowed for policy in policies if policy.allowed is not None), None))


def first_topology(policies: tuple[Policy, ...], topology: Topology) -> Topology:
    """Return the initial graph: with all allowed edges if a policy starts dense."""
    if not any(policy.dense for policy in policies):
        return topology
    return _allowed(policies, topology).dense(topology)


def with_penalties(settings: Settings, policies: tuple[Policy, ...]) -> Settings:
    """Return the settings with the L1 penalty that policies need."""
    l1 = max((policy.l1 for policy in policies), default=0.0)
    return replace(settings, l1=l1) if l1 > settings.l1 else settings


def graph_to_tree(graph: Topology) -> Tree:
    """Return a graph as plain values and arrays."""
    sizes = {name: getattr(graph, name) for name in ("n_inputs", "n_hidden", "n_outputs", "bias")}
    return sizes | {"edges": np.stack([graph.src, graph.dst], axis=1).astype(np.int64)}


def graph_from_tree(tree: Tree) -> Topology:
    """Return a graph from an untrusted tree."""
    n_inputs, n_hidden, n_outputs = (tree[name] for name in ("n_inputs", "n_hidden", "n_outputs"))
    return Topology(n_inputs, n_hidden, n_outputs, tree["edges"], bias=switch("bias", tree["bias"]))


@dataclass
class StructureState:
    """The mesh with its lineage, the memories of the policies, and the state of the random generator."""

    mesh: dict[str, Any]
    memories: list[dict[str, Any]]
    random: RandomState


class Structure:
    """The policies of a fit with their memories; edits the mesh between two rows of the history."""

    def __init__(
        self, policies: tuple[Policy, ...], mesh: Mesh, samples: Samples, max_epochs: int, rng: np.random.Generator
    ) -> None:
        self.policies, self.mesh, self.samples, self.max_epochs, self.rng = policies, mesh, samples, max_epochs, rng
        self.allowed = _allowed(policies, mesh.topology)
        self.lineage = mesh.lineage_ = Lineage(mesh.topology)
        self.memories: list[Any] = [policy.new_memory() for policy in policies]

    def _view(self, epoch: int, loss: float = math.nan) -> View:
        growing = any(policy.adds for policy in self.policies)
        return View(
            self.mesh, self.samples, self.rng, self.allowed, self.lineage, growing, epoch, self.max_epochs, loss
        )

    def busy(self, epoch: int) -> bool:
        """Return whether the graph may still change; training then continues."""
        view = self._view(epoch)
        return any(policy.busy(view, memory) for policy, memory in zip(self.policies, self.memories, strict=True))

    def edit(self, epoch: int, loss: float) -> tuple[Change | None, list[str]]:
        """Apply the edits of all policies in order; return the combined change and notes about it."""
        mesh, whole, notes = self.mesh, None, []
        for policy, memory in zip(self.policies, self.memories, strict=True):
            proposed = policy.propose(self._view(epoch, loss), memory)
            if proposed is None or not (proposed.remove.any() or len(proposed.add)):
                continue
            before = self.lineage.named(mesh.topology)
            change = apply_edit(mesh, proposed)
            step = self.lineage.record(epoch, before, mesh.topology, change.edges, change.hidden, proposed.reason)
            whole = change if whole is None else change.after(whole)
            counts = [f"{sign}{len(edges)}" for sign, edges in (("+", step.added), ("-", step.removed)) if len(edges)]
            notes.append(f"{proposed.reason}: {' '.join(counts)} edges")
        return whole, notes

    def unmet(self, epoch: int) -> list[str]:
        """Return one message per target that a policy has missed at the end."""
        view = self._view(epoch)
        found = (policy.unmet(view, memory) for policy, memory in zip(self.policies, self.memories, strict=True))
        return [message for message in found if message]

    def state(self) -> Tree:
        """Return the state as a tree, without the policies."""
        memories, random = memories_to_tree(self.memories), self.rng.bit_generator.state
        found: Tree = to_tree(StructureState(self.mesh.to_tree(), memories, random))
        return found

    def restore(self, tree: Tree) -> None:
        """Continue from a state; the mesh gets its graph (the weights are set later)."""
        state, t = from_tree(StructureState, tree, {}, "structure"), self.mesh.topology
        found = Mesh.from_tree(state.mesh)
        topology, lineage = found.topology, found.lineage_
        sizes = (topology.n_inputs, topology.n_outputs, topology.bias)
        if lineage is None or sizes != (t.n_inputs, t.n_outputs, t.bias):
            raise MeshError(f"the graph must have a lineage and the inputs and outputs of {t!r}, got {topology!r}")
        self.memories = memories_from_tree(self.policies, state.memories)
        self.mesh.replace(topology, found.weights, found.codes, found.ties)
        self.lineage = self.mesh.lineage_ = lineage
        self.rng.bit_generator.state = state.random


def memories_to_tree(memories: list[Any]) -> list[Tree]:
    """Return the memories of the policies as plain values."""
    return [deepcopy(to_tree(memory)) for memory in memories]


def memories_from_tree(policies: tuple[Policy, ...], trees: Any) -> list[Any]:
    """Return memories from untrusted trees; a user-defined policy checks its dictionary itself."""
    if not isinstance(trees, list) or len(trees) != len(policies) or not all(isinstance(tree, dict) for tree in trees):
        raise MeshError(f"memories must be a list of {len(policies)} dictionaries, one per policy, got {trees!r:.100}")
    found = []
    for policy, tree in zip(policies, trees, strict=True):
        kind: Any = policy.new_memory
        name = f"memory of {type(policy).__name__}"
        checked = isinstance(kind, type) and is_dataclass(kind)
        found.append(from_tree(kind, tree, {}, name) if checked else deepcopy(tree))
    return found


@dataclass(frozen=True)
class Lost(Policy):
    """Placeholder of a policy that a file could not hold; a fit with it is refused."""

    name: str

    @property
    def refusal(self) -> str:  # type: ignore[override]
        """Return why a fit is refused, and how to continue."""
        return (
            f"the model was trained with the policy {self.name}, which its file cannot hold; call "
            "set_params(structure=...) to use the policy again, or set_params(structure=None) to keep the graph fixed"
        )


def structure_to_tree(structure: Any) -> Tree:
    """Return a value of `structure=` as plain values and arrays."""
    policies = [_policy_to_tree(policy) for policy in as_policies(structure, to_use=False)]
    return {"single": isinstance(structure, Policy), "policies": policies}


def _policy_to_tree(policy: Policy) -> Tree:
    if KINDS.get(type(policy).__name__) is not type(policy):
        return {"lost": policy.name if isinstance(policy, Lost) else type(policy).__name__}
    found: Tree = to_tree(policy)
    allowed = found.get("allowed")
    if allowed is not None:
        found["allowed"] = graph_to_tree(allowed) if isinstance(allowed, Topology) else np.asarray(policy.allowed)
    return {"kind": type(policy).__name__} | found


def structure_from_tree(tree: Tree) -> Any:
    """Return a value of `structure=` from an untrusted tree."""
    policies = [_policy_from_tree(item) for item in tree["policies"]]
    if tree["single"]:
        return policies[0]
    return policies or None


def _policy_from_tree(tree: Tree) -> Policy:
    kind = KINDS.get(tree.get("kind", ""))
    if kind is None:  # user-defined, or of a newer version
        return Lost(str(tree.get("lost", tree.get("kind")))[:100])
    given = {name: value for name, value in tree.items() if name != "kind"}
    if isinstance(given.get("allowed"), dict):
        given["allowed"] = graph_from_tree(given["allowed"])
    policy: Policy = from_tree(kind, given, {})
    return policy
