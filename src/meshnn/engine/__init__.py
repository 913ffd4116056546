"""Engines: run a plan on NumPy arrays. The only seam between the arrays that callers pass and the compiled core.

A batch is cut into fixed buckets, whatever the number of threads; each bucket sums its own gradient, and buckets are
added in order: any number of threads gives the same bits.
"""

from meshnn.engine.engine import Curvature, Engine, Gradient
from meshnn.engine.engines import Engines
from meshnn.engine.steps import Optimizer, Steps
from meshnn.engine.threads import BUCKETS, cores

__all__ = ["BUCKETS", "Curvature", "Engine", "Engines", "Gradient", "Optimizer", "Steps", "cores"]
