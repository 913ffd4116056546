"""`MeshLayer`: outputs and gradients, compared with plain operations and finite differences."""

import copy

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacrev

from cases import ACTIVATION_NAMES
from layers import F32, F64, GRAPHS, both_gradients, called, loss_of, make, numbers, same
from meshnn import MeshError, Topology
from meshnn.integrations import torch_ops
from meshnn.torch import MeshLayer


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in GRAPHS if kind != "padding"])  # too large for differences
def test_gradients_against_differences(kind, ties):
    layer = make(kind, ties)
    x, weight = numbers(3, layer.topology.n_inputs, needs=True), layer.weight.detach().clone().requires_grad_()
    assert gradcheck(called(layer), (x, weight))
    # the operation that compilers use
    values = layer._values().detach().requires_grad_()
    assert gradcheck(lambda x, v: torch_ops.layer(x, v, layer.spec.key), (x, values))


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
@pytest.mark.parametrize(("dtype", "tolerance", "size"), [(F32, 2e-4, 70), (F64, 1e-11, 1), (F64, 1e-11, 40)])
def test_kernels_and_plain_operations_agree(name, dtype, tolerance, size):
    layer = make("cycles", activation=name, dtype=dtype)
    pure = copy.deepcopy(layer)
    pure.pure = True
    x, g = numbers(size, 3, dtype=dtype), numbers(size, 2, dtype=dtype, seed=1)
    same(both_gradients(layer, x, g), both_gradients(pure, x, g), tolerance)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("size", [5, 33])
def test_graphs_in_plain_operations(kind, ties, size):
    layer = make(kind, ties)
    pure = MeshLayer.from_mesh(layer.mesh(), pure=True)
    x, g = numbers(size, layer.topology.n_inputs), numbers(size, layer.topology.n_outputs, seed=1)
    y, by_x, by_weight = both_gradients(pure, x, g)
    same(both_gradients(layer, x, g), (y, by_x, by_weight))
    # a single gradient uses another code path
    same(torch.autograd.grad(layer(x), layer.weight, g), (by_weight,))
    x.requires_grad_()
    same([torch.autograd.grad(layer.requires_grad_(False)(x), x, g)[0]], [by_x])


def test_a_hand_worked_gradient():
    layer = MeshLayer(
        Topology(1, 1, 1, [(0, 1), (1, 1), (1, 2)], bias=False), 3, "identity", weights=[2.0, 3.0, 5.0], dtype=F64
    )
    x = torch.tensor([[7.0]], dtype=F64, requires_grad=True)
    layer(x).backward()  # y = 5 (2x + 3 (2x)) = 5 a (1 + b) x
    assert x.grad.tolist() == [[40.0]]
    assert layer.weight.grad.tolist() == [5 * 4 * 7.0, 5 * 2 * 7.0, 2 * 4 * 7.0]


def test_threads_do_not_change_a_bit():
    layer = MeshLayer(Topology.mesh(33, 50, 10, density=0.5, random_state=0), 3, "tanh", dtype=F64, random_state=0)
    x, g = numbers(1000, 33), numbers(1000, 10, seed=1)
    before, found = torch.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(both_gradients(layer, x, g))
    finally:
        torch.set_num_threads(before)
    same(found[0], both_gradients(MeshLayer.from_mesh(layer.mesh(), pure=True), x, g), 1e-10)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_shapes_of_x():
    layer, x = make("cycles"), numbers(4, 5, 3)
    y = layer(x)
    assert y.shape == (4, 5, 2)
    same([layer(x[1, 2]), layer(x.transpose(0, 1))], [y[1, 2], y.transpose(0, 1)])
    strided, want = x.movedim(-1, 0).contiguous().movedim(0, -1).requires_grad_(), x.clone().requires_grad_()
    assert not strided.is_contiguous()
    same([layer(strided)], [y])
    same(torch.autograd.grad(layer(strided).sum(), strided), torch.autograd.grad(layer(want).sum(), want))


def test_no_samples_and_what_is_not_finite():
    layer = make("cycles")
    x = torch.empty(0, 3, dtype=F64, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, 2)
    assert x.grad.shape == (0, 3)
    assert not layer.weight.grad.any()
    x = numbers(3, 3)
    x[1, 0] = float("nan")
    assert torch.isnan(layer(x)).any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("size", [4, 70])  # states are kept for small batches only
def test_several_calls_before_the_backward_pass(size):
    layer, x = make("cycles"), numbers(size, 3)
    pure = MeshLayer.from_mesh(layer.mesh(), pure=True)
    a, b = layer(x), layer(3 * x)
    layer(2 * x)
    want = torch.autograd.grad((pure(x) * pure(3 * x)).sum(), pure.weight)
    for _ in range(2):
        same(torch.autograd.grad((a * b).sum(), layer.weight, retain_graph=True), want)


def test_the_engine_refuses_states_and_addresses_that_do_not_fit():
    compiled = make("cycles").spec.compiled(F64)
    weight, x, g, out = numbers(compiled.n_values), numbers(4, 3), numbers(4, 2), torch.empty(4, 2, dtype=F64)
    kept = compiled.keep(weight.data_ptr(), x.data_ptr(), out.data_ptr(), 4)
    with pytest.raises(ValueError, match="kept"):
        compiled.back(weight.data_ptr(), 0, g.data_ptr(), 0, 0, 3, kept)
    for given in ((0, 0, g.data_ptr()), (weight.data_ptr(), 0, g.data_ptr()), (weight.data_ptr(), out.data_ptr(), 0)):
        with pytest.raises(ValueError, match="length"):  # no crash
            compiled.back(*given, 0, 0, 4)


@pytest.mark.parametrize("size", [4, 40])  # states of batches with more than one row are not kept
def test_weights_changed_in_between_are_noticed(size):
    layer, x = make("cycles"), numbers(size, 3)
    y = layer(x)
    with torch.no_grad():
        layer.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("direct", [True, False])
def test_the_layer_may_be_gone_before_the_way_back(direct):
    layer, x = make("cycles", seed=5), numbers(40, 3, needs=True)
    want = both_gradients(MeshLayer.from_mesh(layer.mesh(), pure=True), x, torch.ones(40, 2, dtype=F64))[1]
    y = layer(x) if direct else torch_ops.layer(x, layer.weight, layer.spec.key)
    _ = [MeshLayer(GRAPHS["cycles"][0], ticks) for ticks in range(5, 45)]  # more graphs than the cache holds
    del layer
    y.sum().backward()
    same([x.grad], [want])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cycles", "layers"])
def test_second_derivatives(kind):
    layer = make(kind)
    x, weight = numbers(2, 3, needs=True), layer.weight.detach().clone().requires_grad_()
    assert gradgradcheck(called(layer), (x, weight))
    pure = MeshLayer.from_mesh(layer.mesh(), pure=True)
    got, want = (jacrev(jacrev(loss_of(some)))(weight.detach(), x.detach()) for some in (layer, pure))
    same([got], [want], 1e-10)


def test_a_gradient_without_autograd():
    for size in (5, 70):
        layer = make("cycles", ties=True)
        x, g = numbers(size, 3), numbers(size, 2, seed=1)
        want = both_gradients(layer, x, g)
        y, pull = layer.vjp(x)
        by_weight, by_x = pull(g)
        same((y, by_x, by_weight), want)
        assert not y.requires_grad
    with pytest.raises(MeshError, match=r"\(3, 2\)"):
        pull(g[:3])
