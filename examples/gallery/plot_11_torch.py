"""
A mesh as a PyTorch layer
=========================

``meshnn.torch.MeshLayer`` is a PyTorch module for any directed graph. It can stand between other layers: autograd
differentiates through it, and one PyTorch optimiser trains all of them. In this example a mesh with cycles stands
between two linear layers.

The example requires PyTorch (``pip install '.[torch]'`` in a clone). Without it, only the graph is drawn.
"""

from matplotlib import pyplot as plt

from meshnn import Mesh, Topology
from meshnn.plots import draw_graph, draw_regions
from meshnn.tables.synthetic import circles

try:
    import torch

    from meshnn.torch import MeshLayer
except ImportError as error:
    MeshLayer = None
    print(f"meshnn.torch cannot be imported ({error}): only the graph is drawn")

topology = Topology.mesh(4, 6, 3)
X, y = circles(600, random_state=0)
X = (X - X.mean(axis=0)) / X.std(axis=0)

# %%
# A linear layer, the mesh and another linear layer, trained with ``torch.optim.Adam``.

if MeshLayer is not None:
    torch.manual_seed(0)
    layer = MeshLayer(topology, ticks=3, activation="tanh")
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), layer, torch.nn.Linear(3, len(set(y.tolist()))))
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimiser.step()
    accuracy = (model(inputs).argmax(dim=1) == labels).float().mean().item()
    count = sum(part.numel() for part in model.parameters())
    print(f"loss {loss.item():.3f}, accuracy {accuracy:.3f}, {count} parameters")


# %%
# The mesh between the layers, and the decision regions of the whole model.


def decide(points):
    """Return the class probabilities."""
    with torch.no_grad():
        return torch.softmax(model(torch.tensor(points, dtype=torch.float32)), dim=1).numpy()


fig, axes = plt.subplots(1, 1 if MeshLayer is None else 2, figsize=(11, 4.6), layout="constrained", squeeze=False)
weights = Mesh(topology, ticks=3, random_state=0).weights
if MeshLayer is not None:
    weights = layer.weight.detach().numpy()
    draw_regions(axes[0, 1], decide, (-2.2, 2.2, -2.2, 2.2), points=X, labels=y)
draw_graph(axes[0, 0], topology, weights, ticks=3)
plt.show()
