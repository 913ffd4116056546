"""A net in PyTorch: functions with derivatives and `vmap` rules, and operators for compilers.

    layer(x, values, key)                            outputs (..., n_outputs) of x (..., n_inputs)
    layer_back(g, x, values, key, by_x, by_values)   dE/dx and dE/dvalues from g = dE/dy; empty unless requested

`values` are the numbers that edges take their weights from, `(n_values,)`, or `(*stack, n_values)` for a stack of nets:
see `_layer_arrays`. `key` identifies the graph, see `LayerSpec`.

Compilers and other tracers use the operators. All other calls use `torch.autograd.Function`s, because dispatching an
operator takes longer than computing a small net, and because transforms of `torch.func` reject operators whose
derivative is registered by `register_autograd` (pytorch issues 168393 and 179652).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

# PyTorch has no public function to query whether a transform or a tracer is active.
from torch._C import _are_functorch_transforms_active as _in_transform
from torch._C import _len_torch_dispatch_stack as _n_modes

from meshnn.engine.layer import Layer
from meshnn.errors import DataError, MeshError
from meshnn.integrations import _layer_arrays
from meshnn.integrations.torch_pure import PureNet
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.topology import Topology

__all__ = ["DTYPES", "LayerSpec", "Pullback", "layer", "layer_back", "run", "vjp"]

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, Tensor | None]
Pullback = Callable[[Tensor], tuple[Tensor, Tensor]]  # from dE/dy to dE/dparameters and dE/dx
_plain = (torch.nn.Parameter, Tensor)
DTYPES = {torch.float32: "float32", torch.float64: "float64"}


class LayerSpec:
    """The constant part of a layer: graph, ticks, activations, ties, and the engines compiled for them.

    Operators find it by its `key`, a hash of its content that is the same in every process. So compiled code from a
    cache on disk finds the graph that it was compiled for.
    """

    def __init__(self, topology: Topology, ticks: int, codes: NDArray[np.int64], ties: Ties) -> None:
        self.topology, self.ticks, self.codes, self.ties = topology, ticks, codes, ties
        self.n_inputs, self.n_outputs, self.n_values = topology.n_inputs, topology.n_outputs, ties.n_numbers
        self._compiled: dict[torch.dtype, Layer] = {}

    @classmethod
    def of(cls, mesh: Mesh) -> LayerSpec:
        """Return the spec of a mesh; equal layers share one object."""
        return _shared(mesh.topology, mesh.ticks, mesh.codes, mesh.ties.tied)

    @classmethod
    def named(cls, key: str) -> LayerSpec:
        """Return the spec with this key."""
        found = _known.get(key)
        if found is None:
            raise MeshError(f"no MeshLayer with the graph {key} exists in this process; create or load it first")
        return found

    @cached_property
    def key(self) -> str:
        """The hash of the content: 32 characters."""
        # The first number is a version of the operators, because PyTorch's cache on disk ignores their signatures.
        numbers = np.concatenate([[3, self.ticks], self.codes, self.ties.tied]).astype(np.int64)
        return hashlib.sha256(self.topology._digest + numbers.tobytes()).hexdigest()[:32]

    @cached_property
    def pure(self) -> PureNet:
        """The net in plain PyTorch operations."""
        return PureNet(self.topology, self.ties.number, self.codes, self.ticks)

    def compiled(self, dtype: torch.dtype) -> Layer:
        """Return the engine's layer."""
        if dtype not in self._compiled:
            made = Layer.of(self.topology, self.ticks, self.codes, self.ties, np.dtype(DTYPES[dtype]))
            self._compiled.setdefault(dtype, made)
        return self._compiled[dtype]

    def check(self, x: Tensor, values: Tensor) -> None:
        """Raise an error for tensors that the engine, which has no checks, does not support."""
        if values.dtype not in DTYPES or x.dtype != values.dtype:
            raise DataError(f"x and weight must be float32, or both float64, got x {x.dtype}, weight {values.dtype}")
        if x.ndim < max(values.ndim, 1) or x.shape[-1] != self.n_inputs:
            raise DataError(f"x must have shape (..., {self.n_inputs}), got {tuple(x.shape)}")
        if values.ndim == 0 or values.shape[-1] != self.n_values:
            raise DataError(f"there must be {self.n_values} weights, got shape {tuple(values.shape)}")

    def __reduce__(self) -> Any:
        return _shared, (self.topology, self.ticks, self.codes, self.ties.tied)


_known: WeakValueDictionary[str, LayerSpec] = WeakValueDictionary()
#: Recent specs, because the backward pass of compiled code may run after its layer was deleted.
_recent: deque[LayerSpec] = deque(maxlen=32)


def _shared(topology: Topology, ticks: int, codes: NDArray[np.int64], tied: NDArray[np.int64]) -> LayerSpec:
    made = LayerSpec(topology, ticks, codes, Ties(topology.n_edges, tied))
    found = _known.setdefault(made.key, made)
    _recent.append(found)
    return found


# -- operators for tracers -----------------------------------------------------------------------------------------


@torch.library.custom_op("meshnn::layer", mutates_args=(), device_types="cpu")
def layer(x: Tensor, values: Tensor, key: str) -> Tensor:
    """Return the outputs of a net, or of a stack of nets."""
    spec = LayerSpec.named(key)
    spec.check(x, values)
    v_, x_ = values.numpy(force=True), x.numpy(force=True)
    y = _layer_arrays.forward(spec.compiled(x.dtype), v_, x_, spec.n_outputs, torch.get_num_threads())
    return torch.from_numpy(y)


@layer.register_fake
def _empty_outputs(x: Tensor, values: Tensor, key: str) -> Tensor:
    spec = LayerSpec.named(key)
    spec.check(x, values)
    return x.new_empty((*_stack(values, x), *x.shape[values.ndim - 1 : -1], spec.n_outputs))


@torch.library.custom_op("meshnn::layer_back", mutates_args=(), device_types="cpu")
def layer_back(g: Tensor, x: Tensor, values: Tensor, key: str, by_x: bool, by_values: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients by x and by the values."""
    spec = LayerSpec.named(key)
    spec.check(x, values)
    v_, x_, g_ = (t.numpy(force=True) for t in (values, x, g))
    dv, dx = _layer_arrays.vjp(spec.compiled(x.dtype), v_, x_, g_, (by_values, by_x), torch.get_num_threads())
    return torch.from_numpy(dx), torch.from_numpy(dv)


@layer_back.register_fake
def _empty_gradients(
    g: Tensor, x: Tensor, values: Tensor, key: str, by_x: bool, by_values: bool
) -> tuple[Tensor, Tensor]:
    stack = _stack(values, x, g)
    dx = x.new_empty((*stack, *x.shape[values.ndim - 1 :]) if by_x else (0,))
    return dx, x.new_empty((*stack, values.shape[-1]) if by_values else (0,))


def _stack(values: Tensor, *others: Tensor) -> tuple[int, ...]:
    """Return the broadcast axes of a stack of nets."""
    axes, broadcast = values.ndim - 1, cast(Any, torch.broadcast_shapes)
    shapes: tuple[int, ...] = broadcast(values.shape[:-1], *(t.shape[:axes] for t in others)) if axes else ()
    return shapes


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save the tensors and the spec, which must exist until the backward pass."""
    x, values, key = inputs
    ctx.save_for_backward(x, values)
    ctx.spec = LayerSpec.named(key)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    return *_gradients(ctx, g), None


layer.register_autograd(_backward, setup_context=_remember)
layer.register_vmap(lambda info, in_dims, x, values, key: (layer(*_in_front(in_dims, x, values), key), 0))


# -- functions for all other calls ---------------------------------------------------------------------------------


class _Outputs(torch.autograd.Function):
    """Outputs of a net or a stack of nets, and the states of a small batch for the backward pass."""

    @staticmethod
    def forward(x: Tensor, values: Tensor, spec: LayerSpec) -> Any:
        if values.ndim > 1:
            return layer(x, values, spec.key), None
        return _forward(_contiguous(x), _contiguous(values), spec, True)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, values, ctx.spec = inputs
        ctx.states = output[1]
        ctx.save_for_backward(x, values)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: None) -> Any:
        # the fast path, unless second derivatives or several gradients at once are requested
        if ctx.states is None or torch.is_grad_enabled() or _in_transform() or not _in_memory(g):
            return *_gradients(ctx, g), None
        x, values = ctx.saved_tensors
        return *_back(g, x, _contiguous(values), ctx.spec, ctx.states, ctx.needs_input_grad), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, values: Tensor, spec: LayerSpec) -> Any:
        return _outputs(*_in_front(in_dims, x, values), spec), (0, None)


class _Gradients(torch.autograd.Function):
    """The gradients by x and by the values, as `layer_back` returns."""

    @staticmethod
    def forward(g: Tensor, x: Tensor, values: Tensor, spec: LayerSpec, *wanted: bool) -> Any:
        return layer_back(g, x, values, spec.key, *wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        g, x, values, ctx.spec, *ctx.wanted = inputs
        ctx.save_for_backward(g, x, values)

    @staticmethod
    def backward(ctx: Any, cdx: Tensor, cdv: Tensor) -> tuple[Any, ...]:
        """Differentiate the pure net, because the engine has only first derivatives."""

        def product(*given: Tensor) -> Tensor:
            found = zip(ctx.spec.pure.vjp(*given), (cdx, cdv), ctx.wanted, strict=True)
            return sum(((d * c).sum() for d, c, wanted in found if wanted), given[0].new_zeros(()))

        return (*torch.func.grad(product, argnums=(0, 1, 2))(*ctx.saved_tensors), None, None, None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        tensors = map(_front, given[:3], in_dims[:3])
        return _gradients_of(*tensors, *given[3:]), tuple(0 if want else None for want in given[4:])


_outputs: Callable[..., Any] = _Outputs.apply
#: The function without the check for transforms, which takes as long as a small net.
_outputs_now: Callable[..., Any] = super(torch.autograd.Function, _Outputs).apply
_gradients_of: Callable[..., Any] = _Gradients.apply


def _in_front(in_dims: Any, x: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Move the vmap axis to the front: more samples for one net, or a larger stack of nets."""
    one = in_dims[1] is None and values.ndim == 1
    return _front(x, in_dims[0]), values if one else _front(values, in_dims[1])


def _front(t: Tensor, dim: int | None) -> Tensor:
    """Move the vmap axis to the front; add an axis of length 1 if there is none."""
    return t.unsqueeze(0) if dim is None else t.movedim(dim, 0)


def _gradients(ctx: Any, g: Tensor) -> Gradients:
    """Return dE/dx and dE/dvalues, if they are requested."""
    (x, values), (by_x, by_values, _) = ctx.saved_tensors, ctx.needs_input_grad
    if _is_traced(g, x, values):
        dx, dv = layer_back(g, x, values, ctx.spec.key, by_x, by_values)
    else:
        dx, dv = _gradients_of(g, x, values, ctx.spec, by_x, by_values)
    if values.ndim > 1:  # sum over the broadcast axes
        dx, dv = dx.sum_to_size(x.shape) if by_x else dx, dv.sum_to_size(values.shape) if by_values else dv
    return dx if by_x else None, dv if by_values else None


def _is_traced(*tensors: Tensor) -> bool:
    """Return whether a compiler or another tracer needs an operator."""
    return torch.compiler.is_compiling() or _n_modes() > 0 or any(type(t) not in _plain for t in tensors)


def run(x: Tensor, values: Tensor, spec: LayerSpec) -> Tensor:
    """Return the differentiable outputs on the fastest path for these tensors on the CPU."""
    if _is_traced(x, values):
        y: Tensor = layer(x, values, spec.key)
        return y
    spec.check(x, values)
    if _in_transform():
        call = _outputs
    elif torch.is_grad_enabled() and (values.requires_grad or x.requires_grad):
        call = _outputs_now
    else:
        return _forward(_contiguous(x), _contiguous(values), spec, False)[0]
    y, _ = call(x, values, spec)
    return y


def vjp(x: Tensor, values: Tensor, spec: LayerSpec) -> tuple[Tensor, Pullback]:
    """Return the outputs and a function from dE/dy to dE/dparameters and dE/dx; autograd records nothing."""
    spec.check(x, values)
    x, values = _contiguous(x).detach(), _contiguous(values).detach()
    y, states = _forward(x, values, spec, True)

    def pull(dy: Tensor) -> tuple[Tensor, Tensor]:
        if dy.shape != y.shape or dy.dtype != y.dtype:
            raise DataError(f"dE/dy must be {tuple(y.shape)} {y.dtype} like y, got {tuple(dy.shape)} {dy.dtype}")
        dx, dv = cast(tuple[Tensor, Tensor], _back(dy, x, values, spec, states, (True, True)))
        return dv if spec.ties.n_parameters == spec.n_values else dv[: spec.ties.n_parameters], dx

    return y, pull


def _forward(x: Tensor, values: Tensor, spec: LayerSpec, keep: bool) -> tuple[Tensor, Any]:
    """Return the outputs and, if requested, the states of a small batch."""
    y, compiled = x.new_empty((*x.shape[:-1], spec.n_outputs)), spec.compiled(x.dtype)
    call: Callable[..., Any] = compiled.keep if keep else compiled.forward
    size = x.numel() // spec.n_inputs
    return y, call(values.data_ptr(), x.data_ptr(), y.data_ptr(), size, torch.get_num_threads())


def _back(g: Tensor, x: Tensor, values: Tensor, spec: LayerSpec, states: Any, wanted: Any) -> Gradients:
    """Return dE/dx and dE/dvalues; x is read only without states, and must then be contiguous."""
    g = _contiguous(g)
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else None
    dv = g.new_empty(spec.n_values) if wanted[1] else None
    spec.compiled(x.dtype).back(
        values.data_ptr(), 0 if states is not None else x.data_ptr(), g.data_ptr(),
        0 if dv is None else dv.data_ptr(), 0 if dx is None else dx.data_ptr(),
        x.numel() // spec.n_inputs, states, torch.get_num_threads(),
    )  # fmt: skip
    return dx, dv


def _contiguous(t: Tensor) -> Tensor:
    return t if t.is_contiguous() and not t.is_neg() else t.resolve_neg().contiguous()


def _in_memory(t: Tensor) -> bool:
    """Return whether a tensor is in memory and not a batched one of `is_grads_batched`."""
    try:
        t.data_ptr()
    except RuntimeError:
        return False
    return True
