"""What callers hand in, made into arrays the engine can run on, or refused with a sentence that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import as_list, known
from meshnn.engine import Targets
from meshnn.errors import DataError, MeshError
from meshnn.kernels.codes import ACTIVATIONS, CROSS_ENTROPY, LOSSES
from meshnn.topology import Topology

__all__ = [
    "activation_codes",
    "as_dtype",
    "as_inputs",
    "as_pairs",
    "as_targets",
    "as_weights",
]

Array = NDArray[Any]


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """float32 or float64."""
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = "unknown"
    if dtype is None or name not in ("float32", "float64"):
        raise MeshError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    return np.dtype(np.float32 if name == "float32" else np.float64)


def activation_codes(topology: Topology, hidden: Any, output: Any) -> NDArray[np.int64]:
    """One code per neuron; inputs are identity."""
    codes = np.full(topology.n_neurons, ACTIVATIONS["identity"], dtype=np.int64)
    if isinstance(hidden, str):
        codes[topology.hidden] = ACTIVATIONS[known("activation", hidden, ACTIVATIONS)]
    else:
        if isinstance(hidden, np.ndarray) and hidden.ndim != 1:
            raise MeshError(f"activation must be one name or a list of names, got an array of shape {hidden.shape}")
        names = as_list("activation", hidden)
        if len(names) != topology.n_hidden:
            raise MeshError(
                f"activation must be one name or one per hidden neuron ({topology.n_hidden}), got {len(names)} names"
            )
        codes[topology.hidden] = [ACTIVATIONS[known("activation", name, ACTIVATIONS)] for name in names]
    codes[topology.outputs] = ACTIVATIONS[known("output_activation", output, ACTIVATIONS)]
    return codes


def _numbers(name: str, value: Any) -> Array:
    """An array of real numbers."""
    if hasattr(value, "tocsr"):
        raise DataError(f"{name} is a scipy sparse matrix; pass a dense array, for example {name}.toarray()")
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{name} is a masked array, whose mask would be lost; fill it first, with {name}.filled(...)")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} is not a rectangular array: {error}") from None
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"{name} must hold numbers, got {_example(array)}") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def _example(array: Array) -> str:
    for value in array.ravel()[:1000]:
        if not isinstance(value, (int, float, np.number)):
            return f"{value!r} among its values"
    return f"dtype {array.dtype}"


def as_inputs(X: Any, topology: Topology, ticks: int) -> Array:
    """`(1, batch, n_inputs)` for static inputs, `(ticks, batch, n_inputs)` for one input a tick. Not copied."""
    array = _numbers("X", X)
    wanted = f"(batch, {topology.n_inputs}) or ({ticks}, batch, {topology.n_inputs}), one input a tick"
    if array.ndim == 2:
        array = array[None]
    elif array.ndim != 3:
        raise DataError(f"X must have shape {wanted}; got {np.shape(X)}")
    elif array.shape[0] != ticks:
        raise DataError(f"X has inputs for {array.shape[0]} ticks, but the mesh runs {ticks}; expected {wanted}")
    if array.shape[2] != topology.n_inputs:
        extra = ""
        if topology.bias and array.shape[2] == topology.n_inputs + 1:
            extra = "; leave the column of ones out, the bias neuron supplies it"
        raise DataError(f"X has {array.shape[2]} features, the mesh has {topology.n_inputs} inputs{extra}")
    if array.shape[1] == 0:
        raise DataError("X is an empty batch; pass at least one sample")
    return array


def as_weights(weights: Any, n_edges: int, dtype: np.dtype[Any]) -> Array:
    """A finite copy `(n_edges,)`."""
    array = _numbers("weights", weights)
    if array.shape != (n_edges,):
        raise DataError(f"weights must have shape ({n_edges},), one per edge of the topology; got {array.shape}")
    with np.errstate(over="ignore"):
        copy = np.array(array, dtype=dtype, order="C")
    finite = np.isfinite(copy)
    if not finite.all():
        e = int(np.flatnonzero(~finite)[0])
        hint = f"does not fit {dtype}" if np.isfinite(array[e]) else "is not finite"
        raise DataError(
            f"weight {e} is {array[e]}, which {hint}; {int((~finite).sum())} of {n_edges} weights are like it"
        )
    return copy


def check_current_weights(weights: Array, n_edges: int) -> None:
    """Raise if weights that were changed in place cannot be used any more."""
    if weights.shape != (n_edges,):
        raise DataError(
            f"the weights were reshaped in place to {weights.shape}; set mesh.weights to ({n_edges},) numbers"
        )
    finite = np.isfinite(weights)
    if not finite.all():
        e = int(np.flatnonzero(~finite)[0])
        raise DataError(
            f"weight {e} is {weights[e]} ({int((~finite).sum())} weights are not finite); if training diverged, "
            "restore earlier weights and lower the learning rate"
        )


def _share(sample_weight: Any, size: int, dtype: np.dtype[Any]) -> Array:
    """Each sample's share of the mean."""
    if sample_weight is None:
        return np.full((size, 1), 1.0 / size, dtype=dtype)
    weight = _numbers("sample_weight", sample_weight)
    if weight.shape != (size,):
        raise DataError(f"sample_weight must have shape ({size},), one per sample; got {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        b = int(np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))[0])
        raise DataError(f"sample_weight[{b}] is {weight[b]}; weights must be finite and not negative")
    largest = float(weight.max())
    if largest == 0.0:
        raise DataError("sample_weight is zero for every sample; give at least one sample a weight")
    weight = weight.astype(np.float64) / largest  # so that the sum cannot overflow
    share: Array = (weight / weight.sum()).astype(dtype)[:, None]
    return share


def as_targets(y: Any, loss: Any, sample_weight: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Targets:
    """Labels or values for `size` samples."""
    code = LOSSES[known("loss", loss, LOSSES)]
    share = _share(sample_weight, size, dtype)
    if code == CROSS_ENTROPY:
        return Targets(code, _labels(y, size, n_outputs).astype(dtype)[:, None], share)
    values = _numbers("y", y)
    if values.ndim == 1 and n_outputs == 1:
        values = values[:, None]
    if values.shape != (size, n_outputs):
        raise DataError(f"for squared_error y must have shape ({size}, {n_outputs}), got {np.shape(y)}")
    with np.errstate(over="ignore"):
        values = np.require(values, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
    finite = np.isfinite(values)
    if not finite.all():
        b, o = np.argwhere(~finite)[0].tolist()
        raise DataError(f"y holds {np.asarray(y).reshape(size, n_outputs)[b, o]} at sample {b}, output {o}, "
                        f"which is not finite in {dtype}; remove or impute it")  # fmt: skip
    return Targets(code, values, share)


def _labels(y: Any, size: int, n_outputs: int) -> Array:
    labels = _numbers("y", y)
    if labels.shape != (size,):
        one_hot = "; these look one-hot, pass y.argmax(axis=1)" if labels.shape == (size, n_outputs) else ""
        raise DataError(f"for cross_entropy y must be labels of shape ({size},), got {labels.shape}{one_hot}")
    if labels.dtype.kind == "f":
        whole_ = np.isfinite(labels) & (labels == np.trunc(labels))
        if not whole_.all():
            b = int(np.flatnonzero(~whole_)[0])
            raise DataError(f"label of sample {b} is {labels[b]}; labels are whole numbers 0 to {n_outputs - 1}")
    low, high = labels.min(), labels.max()
    if low < 0 or high >= n_outputs:
        b = int(np.flatnonzero((labels < 0) | (labels >= n_outputs))[0])
        raise DataError(
            f"label of sample {b} is {labels[b]}, but the mesh has {n_outputs} outputs: "
            f"labels must lie between 0 and {n_outputs - 1}"
        )
    return labels


def as_pairs(src: Any, dst: Any, n_neurons: int) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, ...]]:
    """Sources and destinations as flat arrays, and the shape they were broadcast to."""
    found = []
    for name, value in (("src", src), ("dst", dst)):
        array = _numbers(name, value)
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
