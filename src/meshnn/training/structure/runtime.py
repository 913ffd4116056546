"""`Structure`: the policies of a run, what they remember, and the edits they made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.solver import Change, Samples
from meshnn.training.structure.allowed import Allowed
from meshnn.training.structure.edit import apply_edit
from meshnn.training.structure.policies import Policy
from meshnn.training.structure.view import View

__all__ = ["Structure", "as_policies", "first_topology"]


def as_policies(structure: Any) -> tuple[Policy, ...]:
    """What a user may pass, checked."""
    if structure is None:
        return ()
    found = [structure] if isinstance(structure, Policy) else structure
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(p, Policy) for p in found):
        raise MeshError(
            "structure must be one of structure.Prune, Regrow, Sparsify, Grow, or a list of them, "
            f"got {type(structure).__name__}"
        )
    return tuple(found)


def _mask(policies: tuple[Policy, ...]) -> Any:
    given = [p.allowed for p in policies if getattr(p, "allowed", None) is not None]
    return given[0] if given else None


def first_topology(policies: tuple[Policy, ...], topology: Topology) -> Topology:
    """The graph to begin with."""
    if not any(policy.dense for policy in policies):
        return topology
    return Allowed(topology, _mask(policies)).dense(topology)


class Structure:
    """Edits a mesh between the rows of its training."""

    def __init__(self, policies: tuple[Policy, ...], mesh: Mesh, rng: np.random.Generator) -> None:
        self.policies, self.rng = policies, rng
        self.allowed = Allowed(mesh.topology, _mask(policies))
        self.lineage = Lineage(mesh.topology)
        self.memories: list[dict[str, Any]] = [{} for _ in policies]
        mesh.lineage_ = self.lineage

    def _view(self, mesh: Mesh, samples: Samples, epoch: int, max_epochs: int, loss: float) -> View:
        growing = any(policy.adds for policy in self.policies)
        return View(mesh, samples, self.rng, self.allowed, self.lineage, growing, epoch, max_epochs, loss)

    def busy(self, mesh: Mesh, samples: Samples, epoch: int, max_epochs: int) -> bool:
        """Whether the graph may still change: then training is not over."""
        view = self._view(mesh, samples, epoch, max_epochs, float("nan"))
        return any(policy.busy(view, memory) for policy, memory in zip(self.policies, self.memories, strict=True))

    def edit(
        self, mesh: Mesh, samples: Samples, epoch: int, max_epochs: int, loss: float
    ) -> tuple[list[Change], list[str]]:
        """Let every policy change the mesh; what was changed, one after the other, and in words."""
        changes, words = [], []
        for policy, memory in zip(self.policies, self.memories, strict=True):
            view = self._view(mesh, samples, epoch, max_epochs, loss)
            proposed = policy.propose(view, memory)
            if proposed is None or not (proposed.remove.any() or len(proposed.add)):
                continue
            before = self.lineage.named(mesh.topology)
            change = apply_edit(mesh, proposed)
            step = self.lineage.record(epoch, before, mesh.topology, change.edges, change.hidden, proposed.reason)
            changes.append(change)
            words.append(f"{proposed.reason}: {_counts(len(step.added), len(step.removed))}")
        return changes, words

    # -- taking up again -----------------------------------------------------------------------------------------

    def state(self, mesh: Mesh) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything but the policies; the graph of the mesh included."""
        header, arrays = self.lineage.to_parts()
        t = mesh.topology
        values = {
            "n_hidden": t.n_hidden,
            "lineage": header,
            "memories": [_copied(memory) for memory in self.memories],
            "random": self.rng.bit_generator.state,
        }
        held = {f"lineage.{name}": array for name, array in arrays.items()}
        return values, held | {"src": t.src, "dst": t.dst, "codes": mesh.codes}

    def restore(self, mesh: Mesh, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Bring the mesh to the graph it had (its weights are set later), and go on from there."""
        t = mesh.topology
        pairs = np.stack([arrays["src"], arrays["dst"]], axis=1)
        topology = Topology(t.n_inputs, values["n_hidden"], t.n_outputs, pairs, bias=t.bias)
        lineage = {name.removeprefix("lineage."): a for name, a in arrays.items() if name.startswith("lineage.")}
        self.lineage = Lineage.from_parts(values["lineage"], lineage, topology)
        memories = values["memories"]
        if len(memories) != len(self.policies) or not all(isinstance(memory, dict) for memory in memories):
            raise MeshError("the stored state belongs to other policies")
        self.memories = [_copied(memory) for memory in memories]
        mesh.become_as(topology, arrays["codes"])
        mesh.lineage_ = self.lineage
        self.rng.bit_generator.state = values["random"]


def _copied(memory: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, list) else value for key, value in memory.items()}


def _counts(added: int, removed: int) -> str:
    parts = [f"+{added}"] * bool(added) + [f"-{removed}"] * bool(removed)
    return " ".join(parts) + " edges"
