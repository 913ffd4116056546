"""The operations `meshnn::layer` and `meshnn::layer_back` of PyTorch: our kernels, for autograd, vmap and compilers.

    layer(x, values, key)                      outputs (..., n_outputs) of x (..., n_inputs)
    layer_back(g, x, values, key, wants, each) dE/dx and dE/dvalues from g = dE/dy; those not wanted are empty

`values` are the numbers that edges take their weights from, `(n_values,)`; or `(stack, n_values)`, one net for each of
the first axis of x, which is what `vmap` makes of it. With `each` there is a gradient by the values for each of them,
though the net is one. `key` names the graph, see `Wiring`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

# Whether tensors are what they seem: then we need not go through the dispatcher, which costs more than a small net. Of
# PyTorch's own insides, because it has no other way to ask.
from torch._C import _are_functorch_transforms_active as _transformed
from torch._C import _len_torch_dispatch_stack as _modes

from meshnn.engine.layer import Layer
from meshnn.errors import DataError, MeshError
from meshnn.integrations.torch_pure import PureNet
from meshnn.mesh import Mesh
from meshnn.parameters import Ties
from meshnn.topology import Topology

__all__ = ["Pull", "Wiring", "layer", "layer_back", "pulled", "run"]

#: From dE/dy to dE/dvalues and dE/dx.
Pull = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

_NUMPY: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
_PLAIN = (torch.nn.Parameter, torch.Tensor)
#: Values of `wants`.
BY_INPUTS, BY_VALUES = 1, 2


class Wiring:
    """All that a layer is but for its weights: graph, ticks, activations and ties, and what is compiled for them.

    Operations know it by its `key`, which follows from what it is: the same in every process, so that compiled code
    that a cache on the disk hands to another process finds what it was compiled for, and not some other layer.
    """

    def __init__(self, topology: Topology, ticks: int, codes: NDArray[np.int64], ties: Ties) -> None:
        self.topology, self.ticks, self.codes, self.ties = topology, ticks, codes, ties
        self.n_inputs, self.n_outputs, self.n_values = topology.n_inputs, topology.n_outputs, ties.n_numbers
        self._compiled: dict[torch.dtype, Layer] = {}

    @classmethod
    def of(cls, mesh: Mesh) -> Wiring:
        """That of a mesh; one for all layers that are alike."""
        return _wired(mesh.topology, mesh.ticks, mesh.codes, mesh.ties)

    @classmethod
    def named(cls, key: str) -> Wiring:
        """By its key."""
        found = _known.get(key)
        if found is None:
            raise MeshError(
                f"no MeshLayer with the graph {key} is in this process, but something that was compiled or exported "
                "from one runs here; build or load the layer first, and keep it"
            )
        return found

    @cached_property
    def key(self) -> str:
        """Thirty-two letters that follow from the contents."""
        t = self.topology
        sizes = np.array([t.n_inputs, t.n_hidden, t.n_outputs, t.bias, self.ticks, t.n_edges], np.int64)
        parts = (
            sizes,
            t.src.astype(np.int64),
            t.dst.astype(np.int64),
            self.codes.astype(np.int64),
            self.ties.parameter,
        )
        return hashlib.sha256(b"".join(np.ascontiguousarray(a, np.int64).tobytes() for a in parts)).hexdigest()[:32]

    @cached_property
    def pure(self) -> PureNet:
        """In plain operations."""
        t = self.topology
        sizes = (t.n_inputs, t.n_clamped, t.n_outputs, self.ticks)
        return PureNet(t.src, t.dst, self.ties.number, self.codes, *sizes)

    def compiled(self, dtype: torch.dtype) -> Layer:
        """Return the layer in our kernels."""
        found = self._compiled.get(dtype)
        if found is None:
            made = Layer.of(self.topology, self.ticks, self.codes, self.ties, _NUMPY[dtype])
            found = self._compiled.setdefault(dtype, made)
        return found

    def check(self, x: torch.Tensor, values: torch.Tensor) -> None:
        """Refuse what kernels, which ask nothing, cannot take."""
        if values.dtype not in _NUMPY or x.dtype != values.dtype:
            how = "x.to(layer.weight.dtype) or layer.double()" if values.dtype in _NUMPY else "layer.float(), x.float()"
            raise DataError(
                f"a MeshLayer takes float32 or float64, the same for x and weight, got x {x.dtype} and weight "
                f"{values.dtype}; convert with {how}"
            )
        if x.ndim == 0 or x.shape[-1] != self.n_inputs:
            raise DataError(
                f"x must have shape (..., {self.n_inputs}), one number for each input, got {tuple(x.shape)}"
            )
        if values.shape[-1] != self.n_values or values.ndim not in (1, 2):
            raise DataError(f"there must be {self.n_values} weights, got shape {tuple(values.shape)}")
        if values.ndim == 2 and (x.ndim < 2 or x.shape[0] != values.shape[0]):
            raise DataError(f"of {values.shape[0]} stacked nets x must have as many parts, got shape {tuple(x.shape)}")

    def __deepcopy__(self, memo: Any) -> Wiring:
        return self  # nothing in it changes

    def __reduce__(self) -> Any:
        return _rewired, (self.topology, self.ticks, self.codes, self.ties.parameter)


_known: WeakValueDictionary[str, Wiring] = WeakValueDictionary()
#: Backward passes of compiled code may be left when their layer is gone already.
_recent: deque[Wiring] = deque(maxlen=32)


def _wired(topology: Topology, ticks: int, codes: NDArray[np.int64], ties: Ties) -> Wiring:
    made = Wiring(topology, ticks, codes, ties)
    found = _known.setdefault(made.key, made)
    _recent.append(found)
    return found


def _rewired(topology: Topology, ticks: int, codes: NDArray[np.int64], parameter: NDArray[np.int64]) -> Wiring:
    return _wired(topology, ticks, codes, Ties(topology.n_edges, parameter))


def _solid(t: torch.Tensor) -> torch.Tensor:
    """As kernels read it: itself, wherever that can be."""
    return t if t.is_contiguous() and not t.is_neg() else t.resolve_neg().contiguous()


def _has_place(t: torch.Tensor) -> bool:
    """Whether it is a tensor in memory, and not one of `is_grads_batched`, which PyTorch has no other question for."""
    try:
        t.data_ptr()
    except RuntimeError:
        return False
    return True


# -- the operations ------------------------------------------------------------------------------------------------


@torch.library.custom_op("meshnn::layer", mutates_args=(), device_types="cpu")
def layer(x: torch.Tensor, values: torch.Tensor, key: str) -> torch.Tensor:
    """Outputs, see above."""
    wiring = Wiring.named(key)
    wiring.check(x, values)
    x, values = _solid(x), _solid(values)
    y = x.new_empty((*x.shape[:-1], wiring.n_outputs))
    compiled, threads = wiring.compiled(x.dtype), torch.get_num_threads()
    stack = values.shape[0] if values.ndim == 2 else 1
    size = x.numel() // (wiring.n_inputs * max(stack, 1))
    places = zip(_steps(values, stack, wiring.n_values), _steps(x, stack, size * wiring.n_inputs),
                 _steps(y, stack, size * wiring.n_outputs), strict=True)  # fmt: skip
    for v, begin, out in places:
        compiled.forward(v, begin, out, size, threads)
    return y


@layer.register_fake
def _(x: torch.Tensor, values: torch.Tensor, key: str) -> torch.Tensor:
    wiring = Wiring.named(key)
    wiring.check(x, values)
    return x.new_empty((*x.shape[:-1], wiring.n_outputs))


@torch.library.custom_op("meshnn::layer_back", mutates_args=(), device_types="cpu")
def layer_back(
    g: torch.Tensor, x: torch.Tensor, values: torch.Tensor, key: str, wants: int, each: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients by x and by the values, see above."""
    wiring = Wiring.named(key)
    wiring.check(x, values)
    g, x, values = _solid(g), _solid(x), _solid(values)
    dx, dv = _room_for_gradients(x, values, wiring, wants, each)
    compiled, threads = wiring.compiled(x.dtype), torch.get_num_threads()
    stack = x.shape[0] if each or values.ndim == 2 else 1
    size = x.numel() // (wiring.n_inputs * max(stack, 1))
    samples, outputs = size * wiring.n_inputs, size * wiring.n_outputs
    by_values = _steps(dv, stack, wiring.n_values) if wants & BY_VALUES else [0] * stack
    by_inputs = _steps(dx, stack, samples) if wants & BY_INPUTS else [0] * stack
    nets = _steps(values, stack, wiring.n_values if values.ndim == 2 else 0)
    places = zip(nets, _steps(x, stack, samples), _steps(g, stack, outputs), by_values, by_inputs, strict=True)
    for v, begin, slope, to_values, to_inputs in places:
        compiled.back(v, begin, slope, to_values, to_inputs, size, None, threads)
    return dx, dv


@layer_back.register_fake
def _(
    g: torch.Tensor, x: torch.Tensor, values: torch.Tensor, key: str, wants: int, each: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return _room_for_gradients(x, values, Wiring.named(key), wants, each)


def _steps(t: torch.Tensor, stack: int, width: int) -> list[int]:
    """Addresses of the parts of a stack."""
    first, step = t.data_ptr(), width * t.element_size()
    return [first + k * step for k in range(stack)]


def _room_for_gradients(
    x: torch.Tensor, values: torch.Tensor, wiring: Wiring, wants: int, each: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    stack = (x.shape[0],) if each or values.ndim == 2 else ()
    dx = x.new_empty(x.shape if wants & BY_INPUTS else (0,))
    return dx, x.new_empty((*stack, wiring.n_values) if wants & BY_VALUES else (0,))


# -- their derivatives ---------------------------------------------------------------------------------------------


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, values, ctx.key = inputs
    ctx.save_for_backward(x, values)
    ctx.wiring = Wiring.named(ctx.key)  # so that it lives until then


def _pull_back(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    x, values = ctx.saved_tensors
    return _gradients(ctx.needs_input_grad, g, x, values, ctx.key)


def _gradients(
    needs: Any, g: torch.Tensor, x: torch.Tensor, values: torch.Tensor, key: str
) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    by_x, by_values = bool(needs[0]), bool(needs[1])
    # a gradient may be batched though nothing else is: `is_grads_batched`
    call: Callable[..., tuple[torch.Tensor, torch.Tensor]] = _TransformedBack.apply if _transformed() else layer_back
    dx, dv = call(g, x, values, key, BY_INPUTS * by_x + BY_VALUES * by_values, False)
    return dx if by_x else None, dv if by_values else None, None


def _remember_back(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    g, x, values, ctx.key, ctx.wants, ctx.each = inputs
    ctx.save_for_backward(g, x, values)
    ctx.wiring = Wiring.named(ctx.key)


def _second(ctx: Any, cdx: torch.Tensor, cdv: torch.Tensor) -> tuple[Any, ...]:
    """Second derivatives, which kernels do not have: by the pure net, whatever the order."""
    wants, back = ctx.wants, _pure_back(ctx)

    def product(*given: torch.Tensor) -> torch.Tensor:
        dx, dv = back(*given)
        found: torch.Tensor = (dx * cdx).sum() if wants & BY_INPUTS else dx.new_zeros(())
        return found + (dv * cdv).sum() if wants & BY_VALUES else found

    return (*torch.func.grad(product, argnums=(0, 1, 2))(*ctx.saved_tensors), None, None, None)


def _pure_back(ctx: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """`layer_back` in plain operations: of g, x and values."""
    pure, stacked = ctx.wiring.pure, ctx.saved_tensors[2].ndim == 2

    def back(g: torch.Tensor, x: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found: tuple[torch.Tensor, torch.Tensor] = torch.func.vjp(pure, x, values)[1](g)
        return found

    return torch.func.vmap(back, (0, 0, 0 if stacked else None)) if ctx.each or stacked else back


layer.register_autograd(_pull_back, setup_context=_remember)
layer_back.register_autograd(_second, setup_context=_remember_back)


# -- batches of them -----------------------------------------------------------------------------------------------


def _front(t: torch.Tensor, dim: int | None, count: int) -> torch.Tensor:
    """With the axis of vmap in front."""
    return t.unsqueeze(0).expand(count, *t.shape) if dim is None else t.movedim(dim, 0)


def _batched(
    call: Callable[..., torch.Tensor], info: Any, in_dims: Any, x: torch.Tensor, values: torch.Tensor, key: str
) -> tuple[torch.Tensor, int]:
    """How `layer` is batched: samples more, or a stack of nets."""
    count, stacked = info.batch_size, values.ndim - (in_dims[1] is not None) == 2
    x = _front(x, in_dims[0], count)
    if in_dims[1] is None and not stacked:
        return call(x, values, key), 0
    values = _front(values, in_dims[1], count)
    if not stacked:
        return call(x, values, key), 0
    y = call(x.flatten(0, 1), values.flatten(0, 1), key)
    return y.reshape(count, x.shape[1], *y.shape[1:]), 0


def _batched_back(
    call: Callable[..., tuple[torch.Tensor, torch.Tensor]], info: Any, in_dims: Any, g: torch.Tensor, x: torch.Tensor,
    values: torch.Tensor, key: str, wants: int, each: bool,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int | None, int | None]]:  # fmt: skip
    """How `layer_back` is: a gradient for each."""
    count, stacked = info.batch_size, values.ndim - (in_dims[2] is not None) == 2
    g, x = _front(g, in_dims[0], count), _front(x, in_dims[1], count)
    shared = in_dims[2] is None and not stacked
    values = values if shared else _front(values, in_dims[2], count)
    nested, inner = each or stacked, x.shape[1]
    if nested:
        if not shared:
            values = values if stacked else values.unsqueeze(1).expand(count, inner, values.shape[-1])
            values = values.flatten(0, 1)
        g, x = g.flatten(0, 1), x.flatten(0, 1)
    dx, dv = call(g, x, values, key, wants, shared)
    if nested:
        dx = dx.reshape(count, inner, *dx.shape[1:]) if wants & BY_INPUTS else dx
        dv = dv.reshape(count, inner, *dv.shape[1:]) if wants & BY_VALUES else dv
    return (dx, dv), (0 if wants & BY_INPUTS else None, 0 if wants & BY_VALUES else None)


layer.register_vmap(partial(_batched, layer))
layer_back.register_vmap(partial(_batched_back, layer_back))


# `torch.func` refuses operations whose autograd was registered by `register_autograd` (pytorch/pytorch issues 168393
# and 179652), so that there they are called from functions that have what it asks for.
class _Transformed(torch.autograd.Function):
    """`layer` inside transforms of `torch.func`."""

    @staticmethod
    def forward(x: torch.Tensor, values: torch.Tensor, key: str) -> Any:
        return layer(x, values, key)

    setup_context = staticmethod(_remember)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, values = ctx.saved_tensors
        return _gradients(ctx.needs_input_grad, g, x, values, ctx.key)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _batched(_Transformed.apply, info, in_dims, *arguments)


class _TransformedBack(torch.autograd.Function):
    """The same of `layer_back`."""

    @staticmethod
    def forward(g: torch.Tensor, x: torch.Tensor, values: torch.Tensor, key: str, wants: int, each: bool) -> Any:
        return layer_back(g, x, values, key, wants, each)

    setup_context = staticmethod(_remember_back)
    backward = staticmethod(_second)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _batched_back(_TransformedBack.apply, info, in_dims, *arguments)


# -- the short way -------------------------------------------------------------------------------------------------


class _Short(torch.autograd.Function):
    """The same for tensors that are nothing but tensors, past the dispatcher; states are kept for the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, values: torch.Tensor, wiring: Wiring) -> torch.Tensor:
        given, numbers = _solid(x), _solid(values)
        y = x.new_empty((*x.shape[:-1], wiring.n_outputs))
        size, compiled = x.numel() // wiring.n_inputs, wiring.compiled(x.dtype)
        where = (numbers.data_ptr(), given.data_ptr(), y.data_ptr())
        ctx.kept = (wiring, compiled, size, compiled.keep(*where, size, torch.get_num_threads()))
        ctx.save_for_backward(x, values)
        return y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        kept: tuple[Wiring, Layer, int, Any] = ctx.kept
        wiring, compiled, size, states = kept
        by_x, by_values, _ = ctx.needs_input_grad
        slope, dx, dv, to_x, to_values = _solid(g), None, None, 0, 0
        x, values = ctx.saved_tensors
        # not if second derivatives are wanted, or many at once
        if states is None or torch.is_grad_enabled() or _transformed() or not _has_place(slope):
            return _gradients((by_x, by_values), g, x, values, wiring.key)
        if by_values:
            dv = g.new_empty(wiring.n_values)
            to_values = dv.data_ptr()
        if by_x:
            dx = torch.empty_like(x, memory_format=torch.contiguous_format)
            to_x = dx.data_ptr()
        solid = _solid(values)
        compiled.back(solid.data_ptr(), 0, slope.data_ptr(), to_values, to_x, size, states)
        return dx, dv, None


_transform: Callable[..., torch.Tensor] = _Transformed.apply
# past `Function.apply`, which looks for transforms once more
_short: Callable[..., torch.Tensor] = super(torch.autograd.Function, _Short).apply


def run(x: torch.Tensor, values: torch.Tensor, wiring: Wiring, key: str) -> torch.Tensor:
    """Outputs, differentiable, by the shortest way there is for these tensors on the CPU."""
    found: torch.Tensor
    if torch.compiler.is_compiling():
        found = layer(x, values, key)
    elif _transformed():
        found = _transform(x, values, key)
    elif _modes() or type(x) not in _PLAIN or type(values) not in _PLAIN:
        found = layer(x, values, key)
    else:
        wiring.check(x, values)
        if torch.is_grad_enabled() and (values.requires_grad or x.requires_grad):
            return _short(x, values, wiring)
        return _outputs(_solid(x), _solid(values), wiring)
    return found


def _outputs(x: torch.Tensor, values: torch.Tensor, wiring: Wiring) -> torch.Tensor:
    y = x.new_empty((*x.shape[:-1], wiring.n_outputs))
    size = x.numel() // wiring.n_inputs
    where = (values.data_ptr(), x.data_ptr(), y.data_ptr(), size)
    wiring.compiled(x.dtype).forward(*where, torch.get_num_threads())
    return y


def pulled(x: torch.Tensor, values: torch.Tensor, wiring: Wiring) -> tuple[torch.Tensor, Pull]:
    """Outputs, and a function from dE/dy to dE/dvalues and dE/dx; nothing is recorded."""
    wiring.check(x, values)
    given, numbers, compiled = _solid(x).detach(), _solid(values), wiring.compiled(x.dtype)
    size, y = given.numel() // wiring.n_inputs, given.new_empty((*x.shape[:-1], wiring.n_outputs))
    at, where = numbers.data_ptr(), given.data_ptr()
    states = compiled.keep(at, where, y.data_ptr(), size, torch.get_num_threads())

    def pull(dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if dy.shape != y.shape or dy.dtype != y.dtype:
            raise DataError(f"dE/dy must be {tuple(y.shape)} {y.dtype} as y is, got {tuple(dy.shape)} {dy.dtype}")
        slope, dv, dx = _solid(dy), y.new_empty(wiring.n_values), torch.empty_like(given)
        to = (dv.data_ptr(), dx.data_ptr())
        compiled.back(numbers.data_ptr(), where, slope.data_ptr(), *to, size, states, torch.get_num_threads())
        return dv, dx

    return y, pull
