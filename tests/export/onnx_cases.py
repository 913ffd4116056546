"""ONNX models run by onnxruntime, and data for them."""

from functools import cache

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="ONNX IS NOT TESTED without onnx: pip install '.[dev]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX IS NOT TESTED without onnxruntime: pip install '.[dev]'")

FEW = {"max_epochs": 2, "solver": "adam", "l2": 0.0, "random_state": 0}


def session(model, checked=True):
    if checked:
        onnx.checker.check_model(model, full_check=True)
    assert {domain.domain for domain in model.opset_import} <= {"", "ai.onnx.ml"}
    if model.producer_name == "meshnn":  # onnxruntime warns of tensors that no node reads
        assert {tensor.name for tensor in model.graph.initializer} <= read_by(model.graph)
        large = [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= 64]
        assert len({(tensor.raw_data, tuple(tensor.dims)) for tensor in large}) == len(
            large
        )  # no tensor is stored twice
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def read_by(graph):
    """Return the names that nodes read, including nodes of subgraphs."""
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return {name for node in graph.node for name in node.input}.union(*map(read_by, bodies))


def run(model, X, checked=True, **more):
    """Return the outputs by name."""
    runs = session(model, checked)
    feed = {runs.get_inputs()[0].name: X} | more
    return dict(zip([value.name for value in runs.get_outputs()], runs.run(None, feed), strict=True))


def operators(model):
    return [node.op_type for node in model.graph.node]


def close(got, want, dtype):
    """Check for a difference below 1e-6 of the largest number or of 1; the tolerance for float64 is smaller."""
    assert got.dtype == dtype
    assert got.shape == want.shape
    size = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-6) * size)


@cache
def table():
    """Return features of different scales, and three classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) * [1.0, 3.0, 0.01, 100.0] + [0.0, 5.0, 0.02, -300.0]
    return X, rng.integers(0, 3, 60)


def stream_of(model, classes):
    """Return a stream model that was trained on 60 rows."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        a, b = rng.standard_normal(2)
        target = abs(a + b) if classes is None else classes[int(abs(a + b) * 2) % len(classes)]
        model.learn_one({"a": a * 2 + 10, "b": b, "same": 3.0}, target)
    return model
