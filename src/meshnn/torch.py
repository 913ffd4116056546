"""meshnn in PyTorch: nets of any graph as layers, and `nn.Sequential` to meshes and back.

Importing this imports PyTorch; `import meshnn` does not.
"""

from __future__ import annotations

from meshnn.integrations.torch_layer import MeshLayer
from meshnn.integrations.torch_sequential import from_torch, to_torch

__all__ = ["MeshLayer", "from_torch", "to_torch"]
