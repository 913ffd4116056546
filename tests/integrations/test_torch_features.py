"""`MeshLayer` with PyTorch features: transforms, compilers, copies, dtypes, devices, threads, processes."""

import copy
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, jacrev, vmap

from layers import F32, F64, both_gradients, called, loss_of, make, numbers, same, tied
from meshnn import Mesh, MeshClassifier, MeshError, Topology
from meshnn.integrations import torch_ops
from meshnn.torch import MeshLayer


@pytest.mark.slow
def test_opcheck():
    layer = make("cycles")
    values, check = layer._values().detach(), torch.library.opcheck
    for needs in (False, True):
        check(torch_ops.layer, (numbers(3, 3, needs=needs), values.clone().requires_grad_(needs), layer.spec.key))
    check(torch_ops.layer, (numbers(2, 4, 3), torch.stack([values, 2 * values]), layer.spec.key))
    for wanted in ((True, False), (False, True), (True, True)):
        check(torch_ops.layer_back, (numbers(3, 2), numbers(3, 3), values, layer.spec.key, *wanted))


def test_transforms_of_torch_func():
    layer, x = make("cycles", ties=True), numbers(4, 3)
    pure = MeshLayer.from_mesh(layer.mesh(), pure=True)
    weight = layer.weight.detach()
    (loss, plain), (run, plain_run) = ([of(some) for some in (layer, pure)] for of in (loss_of, called))
    same([grad(loss)(weight, x), grad(loss, 1)(weight, x)], grad(plain, (0, 1))(weight, x))
    same([vmap(grad(loss), (None, 0))(weight, x)], [torch.stack([grad(plain)(weight, one) for one in x])])
    same([jacrev(run, 1)(x, weight)], [jacrev(plain_run, 1)(x, weight)])


@pytest.mark.parametrize("short", [True, False])
def test_many_gradients_at_once(short):
    layer, x = make("cycles"), numbers(4, 3, needs=True)
    y = layer(x) if short else torch_ops.layer(x, layer.weight, layer.spec.key)
    rows = torch.eye(8, dtype=F64).reshape(8, 4, 2)
    got = torch.autograd.grad(y, (x, layer.weight), rows, retain_graph=True, is_grads_batched=True)
    want = [torch.autograd.grad(y, (x, layer.weight), row, retain_graph=True) for row in rows]
    same(got, [torch.stack(some) for some in zip(*want, strict=True)])


@pytest.mark.slow
def test_stacks_of_nets():
    layer, x = make("cycles"), numbers(4, 3)
    weights = torch.stack([layer.weight.detach() * k for k in (1.0, 0.5, -1.0)])
    run, loss = called(layer), loss_of(layer)
    same([vmap(run, (None, 0))(x, weights)], [torch.stack([run(x, w) for w in weights])])
    same([vmap(run, (0, 0))(x[:3], weights)], [torch.stack([run(a, w) for a, w in zip(x, weights, strict=False)])])
    same([vmap(grad(loss), (0, None))(weights, x)], [torch.stack([grad(loss)(w, x) for w in weights])])
    per = vmap(vmap(grad(loss), (None, 0)), (0, None))(weights, x)
    want = torch.stack([torch.stack([grad(loss)(w, a) for a in x]) for w in weights])
    same([per], [want])
    other = vmap(vmap(grad(loss), (0, None)), (None, 0))(weights, x)
    same([other], [want.transpose(0, 1)])
    inner = vmap(vmap(run, (0, None)), (None, 0))(x, weights)
    same([inner], [torch.stack([torch.stack([run(a, w) for a in x]) for w in weights])])
    # the rules of the operations, which other transforms than `torch.func.grad` use
    same([vmap(lambda v: torch_ops.layer(x, v, layer.spec.key))(weights)], [torch.stack([run(x, w) for w in weights])])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # messages of the compiler
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_in_one_graph(backend):
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(6, 3), make("cycles", dtype=F32, ties=True), nn.Tanh(), nn.Linear(2, 1))
    x = numbers(7, 6, dtype=F32)
    y = net(x)
    want = torch.autograd.grad(y.sum(), list(net.parameters()))
    fast = torch.compile(net, fullgraph=True, backend=backend)
    out = fast(x)
    same([out], [y], 1e-5)
    same(torch.autograd.grad(out.sum(), list(net.parameters())), want, 1e-5)
    with torch.no_grad():
        same([fast(x)], [y], 1e-5)


@pytest.mark.slow
def test_exported():
    layer, x = make("cycles", dtype=F32), numbers(4, 3, dtype=F32)
    same([torch.export.export(layer, (x,)).module()(x)], [layer(x)], 1e-6)


def test_what_a_key_stands_for():
    topology, x = Topology.mesh(3, 5, 2, self_loops=True), numbers(4, 3)
    weights = np.full(topology.n_edges, 0.3)
    options = [
        {"ticks": 3}, {"ticks": 4}, {"ticks": 3, "activation": "tanh"}, {"ticks": 3, "tied": tied(topology)},
    ]  # fmt: skip
    layers = [MeshLayer(topology, weights=weights, dtype=F64, **some) for some in options]
    layers.append(make("dead edges"))
    assert len({layer.spec.key for layer in layers}) == len(layers)
    for layer in layers:
        same([torch_ops.layer(x, layer._values(), layer.spec.key)], [MeshLayer.from_mesh(layer.mesh(), pure=True)(x)])
    again = MeshLayer(topology, 3, weights=2 * weights, dtype=F64)
    assert again.spec is layers[0].spec
    with pytest.raises(MeshError, match="0" * 32):
        torch_ops.layer(x, again.weight, "0" * 32)


def test_copies_and_pickles():
    layer, x = make("cycles", ties=True), numbers(4, 3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.spec is layer.spec  # no recompilation
        assert torch.equal(other(x), layer(x))
        with torch.no_grad():
            other.weight *= 2
        assert not torch.equal(other(x), layer(x))


@pytest.mark.slow
def test_a_pickle_in_another_process(tmp_path):
    layer, file = make("cycles", ties=True), tmp_path / "layer.pt"
    torch.save(layer, file)
    program = f"import torch; print(torch.load({str(file)!r}, weights_only=False).spec.key)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == layer.spec.key, done.stderr


def test_state_dict():
    layer, other, x = make("cycles", ties=True), make("cycles", ties=True, seed=1), numbers(4, 3)
    assert {name: tuple(part.shape) for name, part in layer.state_dict().items()} == {
        "weight": (layer.mesh().n_parameters,), "edge_index": (2, layer.topology.n_edges), "fixed": layer.fixed.shape,
    }  # fmt: skip
    other.load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(other(x), layer(x))
    a, b = (MeshLayer(Topology(2, 1, 1, edges)) for edges in ([(0, 3), (3, 4)], [(1, 3), (3, 4)]))
    for other in (b, make("cycles")):
        with pytest.raises(RuntimeError, match="edge_index"):
            nn.Sequential(a).load_state_dict(nn.Sequential(other).state_dict())


def test_other_dtypes():
    layer, x = make("cycles"), numbers(4, 3)
    single = copy.deepcopy(layer).float()
    assert single(x.float()).dtype == F32
    same([single(x.float()).double()], [layer(x)], 1e-5)
    for wrong, given in ((layer, x.float()), (copy.deepcopy(layer).half(), x.half()), (layer, x.long())):
        with pytest.raises(MeshError, match=str(given.dtype)):
            wrong(given)
    for call in (layer, layer.vjp):
        with pytest.raises(MeshError, match="ndarray"):
            call(x.numpy())
    with pytest.raises(MeshError, match="float16"):
        make("cycles", dtype=torch.float16)


@pytest.mark.parametrize("pure", [False, True])
def test_wrong_shapes_are_refused(pure):
    layer = make("cycles", pure=pure)
    for shape in ((4, 2), (), (3, 4)):
        with pytest.raises(MeshError, match=re.escape(str(shape))):
            layer(numbers(*shape))
    with pytest.raises(MeshError, match=str(len(layer.weight) - 1)):
        called(layer)(numbers(4, 3), layer.weight[:-1])
    with pytest.raises(MeshError, match="list"):
        MeshLayer([3, 4])


def test_other_devices_take_plain_operations():
    layer = make("cycles").to("meta")  # the only other device that is always available
    assert layer(torch.empty(4, 3, dtype=F64, device="meta")).shape == (4, 2)
    with pytest.raises(MeshError, match=r"cpu.*meta"):
        layer(numbers(4, 3))
    with pytest.raises(MeshError, match="meta"):
        layer.vjp(torch.empty(4, 3, dtype=F64, device="meta"))


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_autocast_computes_in_the_dtype_of_the_weights(pure, dtype):
    layer, x = make("cycles", dtype=dtype, pure=pure), numbers(4, 3, dtype=dtype)
    rounded = x.bfloat16().requires_grad_()
    want = layer(rounded.detach().to(dtype))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(rounded)
        same([layer(x.detach().bfloat16()), layer.vjp(rounded)[0]], [want, want.detach()], 1e-6)
    assert y.dtype == dtype
    same([y], [want])
    y.sum().backward()
    assert rounded.grad.dtype == torch.bfloat16
    exact = torch.autograd.grad(layer(x.requires_grad_()).sum(), x)[0]
    torch.testing.assert_close(rounded.grad.to(dtype), exact, rtol=0.1, atol=0.05)
    with pytest.raises(MeshError, match="bfloat16"):
        layer(rounded)


def test_torch_decides_about_weights():
    topology = Topology.mesh(3, 5, 2)
    torch.manual_seed(4)
    a = MeshLayer(topology)
    torch.manual_seed(4)
    b = MeshLayer(topology)
    assert torch.equal(a.weight, b.weight)
    a.reset_parameters()
    assert not torch.equal(a.weight, b.weight)
    a.reset_parameters(1)
    np.testing.assert_array_equal(a.weight.detach().numpy(), Mesh(topology, random_state=1).weights)


def test_threads_share_a_layer():
    layer = make("cycles")
    x, g = numbers(20, 3), numbers(20, 2, seed=1)
    want = both_gradients(layer, x, g)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: both_gradients(layer, x, g), range(100)))
    assert all(torch.equal(a, b) for some in found for a, b in zip(some, want, strict=True))


PROGRAM = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from meshnn import Topology
from meshnn.torch import MeshLayer
torch.set_num_threads(1)
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
layer = MeshLayer(Topology.mesh(3, 5, 2, self_loops=True), 4, "tanh", dtype=torch.float64, random_state=rank)
x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
net = DistributedDataParallel(layer)
net(x[rank::2]).square().mean().backward()
if rank == 0:
    torch.save(layer.weight.grad, f"{folder}/out.pt")
dist.barrier()
os._exit(0)  # threads of gloo abort rarely at a normal exit
"""


@pytest.mark.slow
def test_distributed_data_parallel(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen([*command, str(rank), str(tmp_path)], env=environment) for rank in (0, 1)]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    layer = make("cycles")
    layer(numbers(8, 3)).square().mean().backward()
    same([torch.load(tmp_path / "out.pt")], [layer.weight.grad], 1e-12)


def test_meshes_come_and_go():
    for mesh in (
        Mesh(Topology.mesh(3, 4, 2), 3, ["relu", "tanh", "sin", "gauss"], "sigmoid", dtype="float64", random_state=0),
        make("cycles", ties=True, dtype=F32).mesh(),
        MeshClassifier(4, max_epochs=1, random_state=0).fit(np.eye(8), np.arange(8) % 2).mesh_,
    ):
        layer = MeshLayer.from_mesh(mesh)
        x = np.random.default_rng(0).standard_normal((9, mesh.topology.n_inputs)).astype(mesh.dtype)
        got = layer(torch.from_numpy(x)).detach()
        np.testing.assert_allclose(got, mesh.forward(x), rtol=1e-5, atol=1e-6)
        back = layer.mesh()
        for name in ("topology", "activations", "ticks"):
            assert getattr(back, name) == getattr(mesh, name)
        np.testing.assert_array_equal(back.weights, mesh.weights)
        np.testing.assert_array_equal(back.tied, mesh.tied)
        with torch.no_grad():
            layer.weight.zero_()
        assert mesh.weights.any()
        assert back.weights.any()
    with pytest.raises(MeshError, match="MeshClassifier"):
        MeshLayer.from_mesh(MeshClassifier())
