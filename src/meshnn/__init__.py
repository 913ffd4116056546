"""Neural networks of any directed topology, trained with exact gradients computed forward, never backward."""

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["Mesh", "MeshError", "Topology"]
__version__ = "0.1.0"
