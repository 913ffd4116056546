"""Programs: arrays in, kernels run, arrays out. The only seam between what people hand in and what kernels take.

A batch is cut into slabs, slabs into parts, and parts are handed to threads. It is cut the same way whatever the
number of threads, each part sums its own gradient, and the parts are added in order: any number of threads gives the
same bits.
"""

from meshnn.program.program import Curvature, Gradient, Program
from meshnn.program.programs import Programs
from meshnn.program.steps import Optimizer, Steps
from meshnn.program.threads import PARTS, cores, in_threads, parts_of

__all__ = [
    "PARTS",
    "Curvature",
    "Gradient",
    "Optimizer",
    "Program",
    "Programs",
    "Steps",
    "cores",
    "in_threads",
    "parts_of",
]
