"""`Structure`: the policies of a run, what they remember, and the edits they made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.samples import Dataset
from meshnn.training.settings import Settings
from meshnn.training.solver import Change
from meshnn.training.structure.allowed import Allowed
from meshnn.training.structure.edit import apply_edit
from meshnn.training.structure.policies import Policy
from meshnn.training.structure.view import View

__all__ = ["Structure", "as_policies", "first_topology", "with_penalties"]


def as_policies(structure: Any, to_use: bool = True) -> tuple[Policy, ...]:
    """What a user may pass, checked."""
    if structure is None:
        return ()
    found = [structure] if isinstance(structure, Policy) else structure
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(p, Policy) for p in found):
        raise MeshError(
            "structure must be one of structure.Prune, Regrow, Sparsify, Grow, or a list of them, "
            f"got {type(structure).__name__}"
        )
    if to_use and (refusal := next((policy.refusal for policy in found if policy.refusal), "")):
        raise MeshError(refusal)
    return tuple(found)


def _allowed(policies: tuple[Policy, ...], topology: Topology) -> Allowed:
    return Allowed(topology, next((policy.allowed for policy in policies if policy.allowed is not None), None))


def first_topology(policies: tuple[Policy, ...], topology: Topology) -> Topology:
    """The graph to begin with."""
    if not any(policy.dense for policy in policies):
        return topology
    return _allowed(policies, topology).dense(topology)


def with_penalties(settings: Settings, policies: tuple[Policy, ...]) -> Settings:
    """The settings with the penalty that policies need."""
    l1 = max((policy.l1 for policy in policies), default=0.0)
    return replace(settings, l1=l1) if l1 > settings.l1 else settings


class Structure:
    """Edits a mesh between the rows of its training."""

    def __init__(
        self, policies: tuple[Policy, ...], mesh: Mesh, samples: Dataset, max_epochs: int, rng: np.random.Generator
    ) -> None:
        self.policies, self.mesh, self.samples, self.max_epochs, self.rng = policies, mesh, samples, max_epochs, rng
        self.allowed = _allowed(policies, mesh.topology)
        self.lineage = mesh.lineage_ = Lineage(mesh.topology)
        self.memories: list[dict[str, Any]] = [{} for _ in policies]

    def _view(self, epoch: int, loss: float = math.nan) -> View:
        growing = any(policy.adds for policy in self.policies)
        return View(
            self.mesh, self.samples, self.rng, self.allowed, self.lineage, growing, epoch, self.max_epochs, loss
        )

    def busy(self, epoch: int) -> bool:
        """Whether the graph may still change: then training is not over."""
        view = self._view(epoch)
        return any(policy.busy(view, memory) for policy, memory in zip(self.policies, self.memories, strict=True))

    def edit(self, epoch: int, loss: float) -> tuple[Change | None, list[str]]:
        """Let every policy change the mesh, one after the other; what was changed, and in words."""
        mesh, whole, words = self.mesh, None, []
        for policy, memory in zip(self.policies, self.memories, strict=True):
            proposed = policy.propose(self._view(epoch, loss), memory)
            if proposed is None or not (proposed.remove.any() or len(proposed.add)):
                continue
            before = self.lineage.named(mesh.topology)
            change = apply_edit(mesh, proposed)
            step = self.lineage.record(epoch, before, mesh.topology, change.edges, change.hidden, proposed.reason)
            whole = change if whole is None else change.after(whole)
            words.append(f"{proposed.reason}: {_counts(len(step.added), len(step.removed))}")
        return whole, words

    def unmet(self, epoch: int) -> list[str]:
        """What policies were to reach and have not, at the end."""
        view = self._view(epoch)
        found = (policy.unmet(view, memory) for policy, memory in zip(self.policies, self.memories, strict=True))
        return [words for words in found if words]

    # -- taking up again -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but the policies; the graph of the mesh included."""
        mesh, t = self.mesh, self.mesh.topology
        return {
            "n_hidden": t.n_hidden,
            "src": t.src.astype(np.int64),
            "dst": t.dst.astype(np.int64),
            "codes": mesh.codes,
            "parameter": None if mesh.ties.plain else mesh.tied,
            "lineage": self.lineage.to_tree(),
            "memories": deepcopy(self.memories),
            "random": self.rng.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Bring the mesh to the graph it had (its weights are set later), and go on from there."""
        t = self.mesh.topology
        pairs = np.stack([state["src"], state["dst"]], axis=1)
        topology = Topology(t.n_inputs, state["n_hidden"], t.n_outputs, pairs, bias=t.bias)
        lineage = Lineage.from_tree(state["lineage"], topology)
        memories = state["memories"]
        if len(memories) != len(self.policies) or not all(isinstance(memory, dict) for memory in memories):
            raise MeshError("the stored state belongs to other policies")
        self.memories = deepcopy(memories)
        ties = Ties(topology.n_edges, state.get("parameter"))
        self.mesh.replace(topology, np.zeros(topology.n_edges), state["codes"], ties)
        self.lineage = self.mesh.lineage_ = lineage
        self.rng.bit_generator.state = state["random"]


def _counts(added: int, removed: int) -> str:
    parts = [f"+{added}"] * bool(added) + [f"-{removed}"] * bool(removed)
    return " ".join(parts) + " edges"
