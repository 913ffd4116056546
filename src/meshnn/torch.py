"""meshnn in PyTorch: meshes as layers, and conversion between `nn.Sequential` and meshes.

Importing this module imports PyTorch; `import meshnn` does not.
"""

from __future__ import annotations

from meshnn.integrations.torch_layer import MeshLayer
from meshnn.integrations.torch_sequential import from_torch, to_torch

__all__ = ["MeshLayer", "from_torch", "to_torch"]
