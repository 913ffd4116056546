"""Conversion of `nn.Sequential` to meshes and back."""

import numpy as np
import pytest
import torch
from torch import nn

from meshnn import Mesh, MeshError, Topology
from meshnn.torch import MeshLayer, from_torch, to_torch

F64, F32 = torch.float64, torch.float32


def numbers(*shape, dtype):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


SEQUENTIALS = {
    "tanh": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "kinds": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 5, bias=False), nn.LeakyReLU(),
        nn.Linear(5, 4), nn.ELU(), nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 4), nn.Hardtanh(),
        nn.Linear(4, 3), nn.Sigmoid(),
    ),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.Identity(), nn.Linear(5, 3, bias=False)),
    "one": lambda: nn.Sequential(nn.Linear(4, 3)),
    "nested": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(4, 6), nn.Sigmoid()), nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", SEQUENTIALS)
def test_sequentials_come_and_go(name, dtype):
    torch.manual_seed(0)
    model = SEQUENTIALS[name]().to(dtype).eval()
    mesh, x = from_torch(model), numbers(9, 4, dtype=dtype)
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert mesh.ticks == len(linear)
    tolerance = 1e-6 if dtype == F32 else 1e-9
    want = model(x).detach()
    np.testing.assert_allclose(mesh.forward(x.numpy()), want.numpy(), rtol=tolerance, atol=tolerance)
    back = to_torch(mesh)
    torch.testing.assert_close(back(x), want, rtol=tolerance, atol=tolerance)
    again = [m for m in back.modules() if isinstance(m, nn.Linear)]
    for a, b in zip(linear, again, strict=True):
        assert torch.equal(a.weight, b.weight)
        assert (a.bias is None and b.bias is None) or torch.equal(a.bias, b.bias)
    torch.testing.assert_close(MeshLayer.from_mesh(mesh)(x), want, rtol=tolerance, atol=tolerance)


def test_pruned_layers():
    torch.manual_seed(0)
    model, x = SEQUENTIALS["tanh"](), numbers(9, 4, dtype=F32)
    with torch.no_grad():
        for layer in (model[0], model[2], model[4]):
            layer.weight[torch.rand_like(layer.weight) < 0.6] = 0
        model[2].weight[1] = 0  # a neuron whose only input is the bias
        model[0].bias[2] = 0
    mesh = from_torch(model, drop_zeros=True)
    assert mesh.topology.n_edges == sum(int((p != 0).sum()) for p in model.parameters())
    np.testing.assert_allclose(mesh.forward(x.numpy()), model(x).detach().numpy(), atol=1e-6)
    for a, b in zip(model.parameters(), to_torch(mesh).parameters(), strict=True):
        assert torch.equal(a, b)
    assert from_torch(model).topology.n_edges == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("layers", "named"), [
    ([nn.Linear(2, 3), nn.GELU()], "GELU"),
    ([nn.Linear(2, 3), nn.LeakyReLU(0.2)], r"LeakyReLU\(negative_slope=0.2\)"),
    ([nn.Linear(2, 3), nn.ELU(0.5)], r"ELU\(alpha=0.5\)"),
    ([nn.Linear(2, 3), nn.Hardtanh(-1.0, 2.0)], r"Hardtanh\(min_val=-1.0, max_val=2.0\)"),
    ([nn.Linear(2, 3), nn.ReLU6()], r"ReLU6\(\)"),
    ([nn.Linear(2, 3), nn.Softplus(2.0)], r"Softplus\(beta=2.0"),
    ([nn.Linear(2, 3), nn.Softplus(0.5)], r"Softplus\(beta=0.5"),
    ([nn.Linear(2, 3), nn.Softplus(threshold=5.0)], "threshold=5.0"),
    ([nn.Conv1d(2, 3, 1)], "layer 0 is Conv1d"),
    ([nn.Linear(2, 3), nn.BatchNorm1d(3)], "layer 1 is BatchNorm1d"),
    ([nn.Linear(2, 3), nn.Flatten()], "layer 1 is Flatten"),
    ([nn.ReLU(), nn.Linear(2, 3)], r"layer 0 is ReLU"),
    ([nn.Linear(2, 3), nn.ReLU(), nn.Tanh()], r"layer 2 is Tanh"),
    ([nn.Linear(2, 3), nn.Linear(4, 1)], "layer 1 .* 4 .* 3"),
    ([nn.Flatten()], "no Linear"),
    ([nn.Linear(2, 3).half()], "torch.float16"),
    ([nn.Linear(2, 3), nn.Linear(3, 2).double()], "torch.float32, torch.float64"),
])  # fmt: skip
def test_what_from_torch_refuses(layers, named):
    with pytest.raises(MeshError, match=named):
        from_torch(nn.Sequential(*layers))
    with pytest.raises(MeshError, match=type(layers[0]).__name__):
        from_torch(layers[0])


@pytest.mark.parametrize(("mesh", "named"), [
    (Mesh(Topology.cascade(2, 2, 1)), r"edge \(\d+, \d+\)"),
    (Mesh(Topology.mesh(2, 2, 1, self_loops=True)), r"edge \(\d+, \d+\)"),
    (Mesh(Topology(2, 1, 1, [(0, 3), (3, 4), (4, 1)])), r"edge \(4, 1\)"),
    (Mesh(Topology.layered([2, 2, 1]), activation="sin"), "layer 1 .* sin"),
    (Mesh(Topology.layered([2, 2, 1]), activation=["relu", "tanh"]), "layer 1 .* relu and tanh"),
    (Mesh(Topology(2, 2, 2, [(0, 3), (3, 5), (5, 6)])), "layered"),
    ("mesh", "str"),
])  # fmt: skip
def test_what_to_torch_refuses(mesh, named):
    with pytest.raises(MeshError, match=named):
        to_torch(mesh)


def test_softplus_is_the_same_on_both_sides():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Softplus()).double()
    x = torch.linspace(-60, 60, 41, dtype=F64)[:, None]
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        for given in (model, to_torch(from_torch(model))):
            np.testing.assert_allclose(from_torch(given).forward(x.numpy()), given(x).numpy(), rtol=0, atol=3e-9)


def test_more_ticks_than_layers_change_nothing_fewer_do():
    mesh, x = Mesh(Topology.layered([3, 4, 2]), 5, "tanh", random_state=0), numbers(4, 3, dtype=F32)
    np.testing.assert_allclose(to_torch(mesh)(x).detach().numpy(), mesh.forward(x.numpy()), atol=1e-6)
    mesh = Mesh(Topology(2, 2, 1, [(0, 3), (3, 4), (4, 5), (2, 5)]), 3)
    mesh.ticks = 1
    with pytest.raises(MeshError, match=r"1 ticks.*3 layers"):
        to_torch(mesh)
