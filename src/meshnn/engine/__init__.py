"""Runs plans over batches: cuts a batch into slabs, slabs into parts, and hands parts to threads.

A batch is cut the same way whatever the number of threads, each part sums its own gradient, and the parts are added in
order: any number of threads gives the same bits.
"""

from meshnn.engine.batch import Targets
from meshnn.engine.curvature import Curvature, columns_of, curvature
from meshnn.engine.oracle import tensor_gradient, tensor_jacobian
from meshnn.engine.program import Program
from meshnn.engine.run import Gradient, evaluate, gradient, jacobian, predict, states
from meshnn.engine.threads import cores, parts_of
from meshnn.engine.training import Optimizer, Steps

__all__ = [
    "Curvature",
    "Gradient",
    "Optimizer",
    "Program",
    "Steps",
    "Targets",
    "columns_of",
    "cores",
    "curvature",
    "evaluate",
    "gradient",
    "jacobian",
    "parts_of",
    "predict",
    "states",
    "tensor_gradient",
    "tensor_jacobian",
]
