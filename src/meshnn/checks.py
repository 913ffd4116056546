"""Convert arguments to arrays for the engine, and raise an error that states the reason for those it cannot take."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from meshnn.arguments import as_list, known, numbers
from meshnn.arrays import Array, IntArray
from meshnn.codes import ACTIVATIONS
from meshnn.errors import DataError, MeshError
from meshnn.topology import Topology

__all__ = [
    "activation_codes",
    "all_finite",
    "as_dtype",
    "as_inputs",
    "as_pairs",
    "as_readout",
    "as_state",
    "as_tick_weights",
    "as_weights",
    "check_current_weights",
    "labels",
    "numbers",
    "shares",
]


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return float32 or float64."""
    with suppress(TypeError):
        if dtype is not None and np.dtype(dtype).name in ("float32", "float64"):
            return np.dtype(np.float32 if np.dtype(dtype).itemsize == 4 else np.float64)
    raise MeshError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


def activation_codes(topology: Topology, hidden: Any, output: Any) -> IntArray:
    """Return one code per neuron; inputs are identity."""
    codes = np.full(topology.n_neurons, ACTIVATIONS["identity"], dtype=np.int64)
    names = [hidden] * topology.n_hidden if isinstance(hidden, str) else as_list("activation", hidden)
    if len(names) != topology.n_hidden:
        expected = f"one name or one per hidden neuron ({topology.n_hidden})"
        raise MeshError(f"activation must be {expected}, got {len(names)} names")
    codes[topology.hidden] = [ACTIVATIONS[known("activation", name, ACTIVATIONS)] for name in names]
    codes[topology.outputs] = ACTIVATIONS[known("output_activation", output, ACTIVATIONS)]
    return codes


def all_finite(array: Array) -> bool:
    """Return whether all numbers are finite."""
    if array.size <= 4096 and math.isfinite(np.vdot(array, array)):  # takes a quarter of the time of the next line
        return True
    return int(np.count_nonzero(np.isfinite(array))) == array.size


def as_inputs(X: Any, topology: Topology, ticks: int, any_length: bool = False) -> Array:
    """Return `(1, batch, n_inputs)` for static inputs or `(ticks, batch, n_inputs)` for sequences, without copying."""
    array = numbers("X", X)
    if array.ndim == 2 and array.shape[1] == topology.n_inputs and len(array):
        return array[None]
    wanted = f"(batch, {topology.n_inputs}) or ({ticks}, batch, {topology.n_inputs}), one input per tick"
    if array.ndim == 2:
        array = array[None]
    elif array.ndim != 3:
        raise DataError(f"X must have shape {wanted}; got {np.shape(X)}")
    elif array.shape[0] != ticks and not (any_length and len(array)):
        raise DataError(f"X has inputs for {array.shape[0]} ticks, but the mesh runs {ticks}; expected {wanted}")
    if array.shape[2] != topology.n_inputs:
        extra = ""
        if topology.bias and array.shape[2] == topology.n_inputs + 1:
            extra = "; leave the column of ones out, the bias neuron supplies it"
        raise DataError(f"X has {array.shape[2]} features, the mesh has {topology.n_inputs} inputs{extra}")
    if array.shape[1] == 0:
        raise DataError("X is an empty batch; pass at least one sample")
    return array


def as_weights(weights: Any, count: int, dtype: np.dtype[Any], what: str = "weight") -> Array:
    """Return a copy `(count,)`, all of it finite."""
    array = numbers(f"{what}s", weights)
    if array.shape != (count,):
        per = "one per edge of the topology" if what == "weight" else "one per parameter of the mesh"
        raise DataError(f"{what}s must have shape ({count},), {per}; got {array.shape}")
    with np.errstate(over="ignore"):
        copy = np.array(array, dtype=dtype, order="C")
    _check_finite(what, copy, array, "pass finite numbers")
    return copy


def check_current_weights(weights: Array, n_edges: int) -> None:
    """Raise an error if weights that were changed in place can no longer be used."""
    if weights.shape != (n_edges,):
        raise DataError(
            f"the weights were reshaped in place to {weights.shape}; set mesh.weights to an array of shape ({n_edges},)"
        )
    hint = "if training diverged, restore earlier weights and lower the learning rate"
    _check_finite("weight", weights, weights, hint)


def _check_finite(name: str, array: Array, given: Array, hint: str) -> None:
    """Raise DataError about the first number that is not finite; `given` holds it as it was passed."""
    if not all_finite(array):
        wrong = ~np.isfinite(array)
        at = tuple(np.argwhere(wrong)[0].tolist())
        place, count = ", ".join(map(str, at)), f"{wrong.sum():,} of {wrong.size:,}"
        raise DataError(f"{name} {place} is {given[at]}, not finite in {array.dtype} (as are {count}); {hint}")


def shares(sample_weight: Any, size: int, dtype: np.dtype[Any]) -> Array:
    """Return each sample's share of the mean, `(size, 1)`."""
    if sample_weight is None:
        return _equal_shares(size, dtype) if size <= 4096 else np.full((size, 1), 1.0 / size, dtype=dtype)
    weight = numbers("sample_weight", sample_weight)
    if weight.shape != (size,):
        raise DataError(f"sample_weight must have shape ({size},), one per sample; got {weight.shape}")
    if (wrong := ~(np.isfinite(weight) & (weight >= 0))).any():
        b = int(wrong.argmax())
        raise DataError(f"sample_weight[{b}] is {weight[b]}; weights must be finite and not negative")
    largest = float(weight.max())
    if largest == 0.0:
        raise DataError("sample_weight is zero for every sample; at least one sample needs a weight above 0")
    weight = weight.astype(np.float64) / largest  # so that the sum cannot overflow
    share: Array = (weight / weight.sum()).astype(dtype)[:, None]
    return share


@lru_cache(maxsize=16)
def _equal_shares(size: int, dtype: np.dtype[Any]) -> Array:
    """Return equal shares, cached because steps on batches of one size request them repeatedly; treat as read-only."""
    return np.full((size, 1), 1.0 / size, dtype=dtype)


def as_state(state: Any, topology: Topology, size: int, dtype: np.dtype[Any]) -> Array | None:
    """Return the states before the first tick as the kernels take them, `(size, n_neurons)`.

    Values given for clamped neurons are ignored.
    """
    if state is None:
        return None
    given, n = numbers("state", state), topology.n_neurons
    if given.shape not in ((n,), (size, n)):
        raise DataError(
            f"state must have shape ({size}, {n}) or ({n},), the states of all neurons before the first tick as "
            f"returned by return_state=True; got {given.shape}"
        )
    with np.errstate(over="ignore"):
        found = np.array(np.broadcast_to(given, (size, n)), dtype=dtype, order="C")
    found[:, : topology.n_inputs] = 0
    found[:, topology.n_inputs : topology.n_clamped] = 1
    _check_finite("state of sample and neuron", found, np.broadcast_to(given, (size, n)), "begin with state=None")
    return found


def as_tick_weights(loss_ticks: Any, ticks: int, size: int) -> Array:
    """Return the weight of each tick in the loss `(ticks, size)`, possibly as a mask."""
    if isinstance(loss_ticks, str):
        chosen = known("loss_ticks", loss_ticks, ("last", "all"))
        found = np.zeros((ticks, size), dtype=np.bool_)
        found[-1 if chosen == "last" else slice(None)] = True
        return found
    weights = numbers("loss_ticks", loss_ticks)
    if weights.shape not in ((ticks,), (ticks, size)) or not ((weights >= 0) & np.isfinite(weights)).all():
        raise DataError(
            f'loss_ticks must be "last", "all", or a mask or weights of at least 0 of shape (ticks, samples) = '
            f"({ticks}, {size}) or ({ticks},); got shape {weights.shape} of {weights.dtype}"
        )
    if not weights.any():
        raise DataError("loss_ticks is 0 everywhere; at least one tick needs a weight above 0")
    return np.broadcast_to(weights[:, None] if weights.ndim == 1 else weights, (ticks, size))


def as_readout(readout: Any, ticks: int, size: int, dtype: np.dtype[Any]) -> Array:
    """Return the weight of the outputs after each tick in the readout, `(ticks, size, 1)`."""
    weights = numbers("readout", readout)
    if weights.shape not in ((ticks,), (ticks, size)):
        raise DataError(f"readout must have shape (ticks, samples) = ({ticks}, {size}) or ({ticks},); "
                        f"got {weights.shape}")  # fmt: skip
    weights = np.broadcast_to(weights[:, None] if weights.ndim == 1 else weights, (ticks, size))
    _check_finite("readout", weights, weights, "give ticks that do not count the weight 0")
    if not weights.any(axis=0).all():
        b = int(np.flatnonzero(~weights.any(axis=0))[0])
        raise DataError(
            f"readout is 0 at every tick of sample {b}; set the weight of at least one tick, or remove the sample"
        )
    return np.array(weights[:, :, None], dtype=dtype, order="C")


def labels(y: Any, size: int, n_outputs: int) -> Array:
    """Return labels `(size,)` from 0 to n_outputs - 1."""
    found = numbers("y", y)
    if found.shape != (size,):
        one_hot = "; these look one-hot, pass y.argmax(axis=1)" if found.shape == (size, n_outputs) else ""
        raise DataError(f"for cross_entropy y must be labels of shape ({size},), got {found.shape}{one_hot}")
    if found.dtype.kind == "f" and (wrong := found != np.trunc(found)).any():  # NaN, too
        b = int(wrong.argmax())
        raise DataError(f"label of sample {b} is {found[b]}; labels are whole numbers 0 to {n_outputs - 1}")
    if _out_of_range(found, n_outputs):
        b = int(((found < 0) | (found >= n_outputs)).argmax())
        raise DataError(
            f"label of sample {b} is {found[b]}, but the mesh has {n_outputs} outputs: "
            f"labels must lie between 0 and {n_outputs - 1}"
        )
    return found


def _out_of_range(found: Array, n_outputs: int) -> bool:
    if found.dtype == np.int64:  # in one pass: as an unsigned number, a negative one is larger than any label
        return bool(np.maximum.reduce(found.view(np.uint64)) >= n_outputs)
    return bool(found.min() < 0 or found.max() >= n_outputs)


def as_pairs(src: Any, dst: Any, n_neurons: int) -> tuple[IntArray, IntArray, tuple[int, ...]]:
    """Return sources and destinations as flat arrays, and the shape they were broadcast to."""
    found = []
    for name, value in (("src", src), ("dst", dst)):
        array = numbers(name, value)
        if array.dtype.kind == "b" or (array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array))):
            raise DataError(f"{name} must hold whole neuron numbers, got {array.ravel()[:3].tolist()} ...")
        if array.size and (array.min() < 0 or array.max() >= n_neurons):
            raise DataError(f"{name} must hold neuron numbers from 0 to {n_neurons - 1}, "
                            f"got {array.min()} to {array.max()}")  # fmt: skip
        found.append(array.astype(np.int64))
    try:
        a, b = np.broadcast_arrays(*found)
    except ValueError:
        raise DataError(
            f"src and dst must have shapes that broadcast, got {found[0].shape} and {found[1].shape}"
        ) from None
    return a.ravel().copy(), b.ravel().copy(), a.shape
