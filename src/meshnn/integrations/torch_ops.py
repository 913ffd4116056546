"""The operators `meshnn::layer` and `meshnn::layer_back` of PyTorch, with their derivatives and rules for `vmap`.

    layer(x, values, key)                            outputs (..., n_outputs) of x (..., n_inputs)
    layer_back(g, x, values, key, by_x, by_values)   dE/dx and dE/dvalues from g = dE/dy; empty unless wanted

`values` are the numbers that edges take their weights from, `(n_values,)`, or `(*stack, n_values)` for a stack of nets:
see `_layer_arrays`. `key` identifies the graph, see `LayerSpec`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

# PyTorch has no public way to ask whether a tensor is a plain one. If it is, the dispatcher, which costs more than a
# small net, can be bypassed.
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
    """All of a layer but its weights: graph, ticks, activations and ties, and what is compiled for them.

    Operators find it by its `key`, which is computed from its content and so is the same in every process: compiled
    code that a cache on disk passes to another process finds the graph it was compiled for.
    """

    def __init__(self, topology: Topology, ticks: int, codes: NDArray[np.int64], ties: Ties) -> None:
        self.topology, self.ticks, self.codes, self.ties = topology, ticks, codes, ties
        self.n_inputs, self.n_outputs, self.n_values = topology.n_inputs, topology.n_outputs, ties.n_numbers
        self._compiled: dict[torch.dtype, Layer] = {}

    @classmethod
    def of(cls, mesh: Mesh) -> LayerSpec:
        """Return the spec of a mesh, the same object for all layers that are alike."""
        return _shared(mesh.topology, mesh.ticks, mesh.codes, mesh.ties.tied)

    @classmethod
    def named(cls, key: str) -> LayerSpec:
        """Return the spec with this key."""
        found = _known.get(key)
        if found is None:
            raise MeshError(f"no MeshLayer with the graph {key} is in this process; build or load it, and keep it")
        return found

    @cached_property
    def key(self) -> str:
        """A hash of the content, 32 letters."""
        t = self.topology
        # The first number counts changes of the operators: PyTorch's cache on disk does not look at their signatures.
        sizes = [2, t.n_inputs, t.n_hidden, t.n_outputs, t.bias, self.ticks, t.n_edges]
        parts = (sizes, t.src, t.dst, self.codes, self.ties.tied)
        return hashlib.sha256(b"".join(np.asarray(a, np.int64).tobytes() for a in parts)).hexdigest()[:32]

    @cached_property
    def pure(self) -> PureNet:
        """The net in plain operations."""
        return PureNet(self.topology, self.ties.number, self.codes, self.ticks)

    def compiled(self, dtype: torch.dtype) -> Layer:
        """Return the engine's layer."""
        found = self._compiled.get(dtype)
        if found is None:
            made = Layer.of(self.topology, self.ticks, self.codes, self.ties, np.dtype(DTYPES[dtype]))
            found = self._compiled.setdefault(dtype, made)
        return found

    def check(self, x: Tensor, values: Tensor) -> None:
        """Refuse tensors that the engine, which checks nothing, cannot take."""
        if values.dtype not in DTYPES or x.dtype != values.dtype:
            raise DataError(f"x and weight must be float32, or both float64, got x {x.dtype}, weight {values.dtype}")
        if x.ndim < max(values.ndim, 1) or x.shape[-1] != self.n_inputs:
            raise DataError(f"x must have shape (..., {self.n_inputs}), got {tuple(x.shape)}")
        if values.ndim == 0 or values.shape[-1] != self.n_values:
            raise DataError(f"there must be {self.n_values} weights, got shape {tuple(values.shape)}")

    def __deepcopy__(self, memo: Any) -> LayerSpec:
        return self  # it is immutable

    def __reduce__(self) -> Any:
        return _shared, (self.topology, self.ticks, self.codes, self.ties.tied)


_known: WeakValueDictionary[str, LayerSpec] = WeakValueDictionary()
#: Backward passes of compiled code may run when their layer is gone already.
_recent: deque[LayerSpec] = deque(maxlen=32)


def _shared(topology: Topology, ticks: int, codes: NDArray[np.int64], tied: NDArray[np.int64]) -> LayerSpec:
    made = LayerSpec(topology, ticks, codes, Ties(topology.n_edges, tied))
    found = _known.setdefault(made.key, made)
    _recent.append(found)
    return found


# -- operators -----------------------------------------------------------------------------------------------------


def _run_layer(x: Tensor, values: Tensor, key: str) -> Tensor:
    """Return the outputs."""
    spec = LayerSpec.named(key)
    spec.check(x, values)
    given = values.numpy(force=True), x.numpy(force=True)
    return torch.from_numpy(
        _layer_arrays.forward(spec.compiled(x.dtype), *given, spec.n_outputs, torch.get_num_threads())
    )


def _empty_outputs(x: Tensor, values: Tensor, key: str) -> Tensor:
    spec = LayerSpec.named(key)
    spec.check(x, values)
    return x.new_empty((*_stack(values, x), *x.shape[values.ndim - 1 : -1], spec.n_outputs))


def _run_back(g: Tensor, x: Tensor, values: Tensor, key: str, by_x: bool, by_values: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients by x and by the values."""
    spec = LayerSpec.named(key)
    spec.check(x, values)
    v_, x_, g_ = (t.numpy(force=True) for t in (values, x, g))
    dv, dx = _layer_arrays.vjp(spec.compiled(x.dtype), v_, x_, g_, (by_values, by_x), torch.get_num_threads())
    return torch.from_numpy(dx), torch.from_numpy(dv)


def _empty_gradients(
    g: Tensor, x: Tensor, values: Tensor, key: str, by_x: bool, by_values: bool
) -> tuple[Tensor, Tensor]:
    stack = _stack(values, x, g)
    dx = x.new_empty((*stack, *x.shape[values.ndim - 1 :]) if by_x else (0,))
    return dx, x.new_empty((*stack, values.shape[-1]) if by_values else (0,))


def _stack(values: Tensor, *others: Tensor) -> tuple[int, ...]:
    """Return the axes of a stack of nets, broadcast."""
    axes, broadcast = values.ndim - 1, cast(Any, torch.broadcast_shapes)
    shapes: tuple[int, ...] = broadcast(values.shape[:-1], *(t.shape[:axes] for t in others)) if axes else ()
    return shapes


# -- derivatives ---------------------------------------------------------------------------------------------------


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save the tensors, and the spec, which must live until the backward pass."""
    x, values, key = inputs
    ctx.save_for_backward(x, values)
    ctx.spec = LayerSpec.named(key)


def _remember_back(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    g, x, values, key, *ctx.wanted = inputs
    ctx.save_for_backward(g, x, values)
    ctx.spec = LayerSpec.named(key)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, values = ctx.saved_tensors
    return *_gradients(ctx.needs_input_grad, g, x, values, ctx.spec.key), None


def _gradients(needs: Any, g: Tensor, x: Tensor, values: Tensor, key: str) -> Gradients:
    by_x, by_values = bool(needs[0]), bool(needs[1])
    # a gradient may be batched though nothing else is: `is_grads_batched`
    call = _back_in_transform if _in_transform() else layer_back
    dx, dv = call(g, x, values, key, by_x, by_values)
    if values.ndim > 1:  # sum over the axes that were broadcast
        dx, dv = dx.sum_to_size(x.shape) if by_x else dx, dv.sum_to_size(values.shape) if by_values else dv
    return dx if by_x else None, dv if by_values else None


def _second_derivatives(ctx: Any, cdx: Tensor, cdv: Tensor) -> tuple[Any, ...]:
    """Differentiate `layer_back` by the pure net, because the engine has first derivatives only."""

    def product(*given: Tensor) -> Tensor:
        found = zip(ctx.spec.pure.vjp(*given), (cdx, cdv), ctx.wanted, strict=True)
        return sum(((d * c).sum() for d, c, wanted in found if wanted), given[0].new_zeros(()))

    return (*torch.func.grad(product, argnums=(0, 1, 2))(*ctx.saved_tensors), None, None, None)


def _front(t: Tensor, dim: int | None) -> Tensor:
    """Put the axis of vmap in front, with length 1 if there is none."""
    return t.unsqueeze(0) if dim is None else t.movedim(dim, 0)


def _batched(call: Any, info: Any, in_dims: Any, x: Tensor, values: Tensor, key: str) -> tuple[Tensor, int]:
    """Batch `layer`: more samples for one net, or a larger stack of nets."""
    one = in_dims[1] is None and values.ndim == 1
    return call(_front(x, in_dims[0]), values if one else _front(values, in_dims[1]), key), 0


def _batched_back(call: Any, info: Any, in_dims: Any, *given: Any) -> Any:
    """Batch `layer_back`: one gradient for each."""
    tensors = (_front(t, dim) for t, dim in zip(given[:3], in_dims[:3], strict=True))
    return call(*tensors, *given[3:]), tuple(0 if want else None for want in given[4:])


def _registered(name: str, kernel: Any, empty: Any, remember: Any, backward: Any, batched: Any) -> tuple[Any, Any]:
    """Register an operator; return it, and a function with the same rules for use inside transforms of `torch.func`.

    These refuse operators whose derivative is registered by `register_autograd` (pytorch issues 168393 and 179652).
    """
    operator = torch.library.custom_op(f"meshnn::{name}", kernel, mutates_args=(), device_types="cpu")
    operator.register_fake(empty)
    operator.register_autograd(backward, setup_context=remember)
    operator.register_vmap(partial(batched, operator))
    rules = {
        "forward": operator.__call__, "vmap": lambda *given: batched(made.apply, *given), "backward": backward,
        "setup_context": remember,
    }  # fmt: skip
    made: Any = type(name, (torch.autograd.Function,), {key: staticmethod(rule) for key, rule in rules.items()})
    return operator, made.apply


layer, _in_transform_layer = _registered("layer", _run_layer, _empty_outputs, _remember, _backward, _batched)
layer_back, _back_in_transform = _registered(
    "layer_back", _run_back, _empty_gradients, _remember_back, _second_derivatives, _batched_back
)


# -- plain tensors, past the dispatcher ----------------------------------------------------------------------------


class _Direct(torch.autograd.Function):
    """The same for plain tensors; the states of small batches are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, spec: LayerSpec) -> Tensor:
        y, states = _forward(_contiguous(x), _contiguous(values), spec, True)
        ctx.kept = (spec, states)
        ctx.save_for_backward(x, values)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        spec, states = ctx.kept
        by_x, by_values, _ = ctx.needs_input_grad
        x, values = ctx.saved_tensors
        # the operator if second derivatives are wanted, or several at once
        if states is None or torch.is_grad_enabled() or _in_transform() or not _in_memory(g):
            return *_gradients((by_x, by_values), g, x, values, spec.key), None
        return *_back(g, x, _contiguous(values), spec, states, (by_x, by_values)), None


# past `Function.apply`, which looks for transforms once more
_direct: Callable[..., Tensor] = super(torch.autograd.Function, _Direct).apply


def run(x: Tensor, values: Tensor, spec: LayerSpec, key: str) -> Tensor:
    """Return the outputs, differentiable, by the shortest way for these tensors on the CPU."""
    found: Tensor
    if torch.compiler.is_compiling():
        found = layer(x, values, key)
    elif _in_transform():
        found = _in_transform_layer(x, values, key)
    elif _n_modes() or type(x) not in _plain or type(values) not in _plain:
        found = layer(x, values, key)
    else:
        spec.check(x, values)
        if torch.is_grad_enabled() and (values.requires_grad or x.requires_grad):
            return _direct(x, values, spec)
        return _forward(_contiguous(x), _contiguous(values), spec, False)[0]
    return found


def vjp(x: Tensor, values: Tensor, spec: LayerSpec) -> tuple[Tensor, Pullback]:
    """Return the outputs, and a function from dE/dy to dE/dparameters and dE/dx; nothing is recorded."""
    spec.check(x, values)
    x, values = _contiguous(x).detach(), _contiguous(values).detach()
    y, states = _forward(x, values, spec, True)

    def pull(dy: Tensor) -> tuple[Tensor, Tensor]:
        if dy.shape != y.shape or dy.dtype != y.dtype:
            raise DataError(f"dE/dy must be {tuple(y.shape)} {y.dtype} as y is, got {tuple(dy.shape)} {dy.dtype}")
        dx, dv = cast(tuple[Tensor, Tensor], _back(dy, x, values, spec, states, (True, True)))
        return dv if spec.ties.n_parameters == spec.n_values else dv[: spec.ties.n_parameters], dx

    return y, pull


def _forward(x: Tensor, values: Tensor, spec: LayerSpec, keep: bool) -> tuple[Tensor, Any]:
    """Return the outputs and, if asked for, the states of a small batch."""
    y, compiled = x.new_empty((*x.shape[:-1], spec.n_outputs)), spec.compiled(x.dtype)
    call: Callable[..., Any] = compiled.keep if keep else compiled.forward
    size = x.numel() // spec.n_inputs
    return y, call(values.data_ptr(), x.data_ptr(), y.data_ptr(), size, torch.get_num_threads())


def _back(g: Tensor, x: Tensor, values: Tensor, spec: LayerSpec, states: Any, wanted: tuple[bool, bool]) -> Gradients:
    """Return dE/dx and dE/dvalues; x is read only without states, and must be contiguous then."""
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
    """Whether it is a tensor in memory and not a batched one of `is_grads_batched`."""
    try:
        t.data_ptr()
    except RuntimeError:
        return False
    return True
