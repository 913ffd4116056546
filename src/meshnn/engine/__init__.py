"""Engines run a plan on NumPy arrays; they are the only interface between the arrays of callers and the compiled core.

A batch is split into buckets whose number does not depend on the number of threads. Each bucket sums its own gradient,
and the buckets are added in order, so any number of threads returns bitwise identical results.
"""

from meshnn.engine.engine import Curvature, Engine, Gradient
from meshnn.engine.engines import Engines
from meshnn.engine.steps import Optimizer, Steps
from meshnn.engine.threads import BUCKETS, cores

__all__ = ["BUCKETS", "Curvature", "Engine", "Engines", "Gradient", "Optimizer", "Steps", "cores"]
