"""Structure learning: policies that add and remove edges and neurons while the weights are trained."""

from meshnn.training.structure.choosing import CRITERIA
from meshnn.training.structure.policies import Grow, Policy, Prune, Regrow, Sparsify
from meshnn.training.structure.runtime import Structure, as_policies, first_topology

__all__ = ["CRITERIA", "Grow", "Policy", "Prune", "Regrow", "Sparsify", "Structure", "as_policies", "first_topology"]
