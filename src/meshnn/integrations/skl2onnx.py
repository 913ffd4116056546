"""Converters for skl2onnx, so that pipelines with a mesh can be exported as one ONNX model.

Importing this module imports nothing; `register` imports skl2onnx.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshnn.estimators import MeshClassifier, MeshRegressor
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.onnx import LEAST_OPSET, build
from meshnn.export.onnx.graph import Graph

__all__ = ["register"]


def register() -> None:
    """Register `MeshClassifier` and `MeshRegressor` for `skl2onnx.to_onnx` and `convert_sklearn`; repeatable.

    Examples
    --------
    >>> from meshnn.integrations.skl2onnx import register
    >>> register()
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:  # an optional dependency
        raise ExportError("skl2onnx is not installed; install it with pip install 'meshnn[onnx]'") from error
    flag = [True, False]
    options = {"zipmap": [*flag, "columns"], "nocl": flag, "output_class_labels": flag[::-1], "raw_scores": flag}
    update_registered_converter(MeshClassifier, "MeshnnMeshClassifier", _class_shapes, _convert, options=options)
    update_registered_converter(MeshRegressor, "MeshnnMeshRegressor", _value_shapes, _convert)


def _class_shapes(operator: Any) -> None:
    """Set types and shapes of label and probabilities."""
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    blueprint = operator.raw_operator.blueprint()
    zipmap = operator.scope_inst.get_options(operator.raw_operator, {"zipmap": True})["zipmap"]
    double = isinstance(operator.inputs[0].type, DoubleTensorType)
    if zipmap and (blueprint.several or (double and zipmap is True)):
        what = "several labels" if blueprint.several else "features in float64"
        raise ExportError(f"zipmap does not support {what}; pass options={{MeshClassifier: {{'zipmap': False}}}}")
    calculate_linear_classifier_output_shapes(operator)
    if blueprint.several:
        samples = operator.inputs[0].get_first_dimension()
        operator.outputs[0].set_type(Int64TensorType([samples, blueprint.n_outputs]))


def _value_shapes(operator: Any) -> None:
    """Set type and shape of the values."""
    from skl2onnx.common.shape_calculator import calculate_linear_regressor_output_shapes

    calculate_linear_regressor_output_shapes(operator)
    operator.outputs[0].type.shape = [
        operator.inputs[0].get_first_dimension(),
        operator.raw_operator.blueprint().n_outputs,
    ]


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a mesh to those of other models."""
    import onnx.compose
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    opset = container.target_opset
    if opset < LEAST_OPSET:
        raise ExportError(f"opset {opset} lacks operators that the mesh needs; pass target_opset={LEAST_OPSET}")
    blueprint: Blueprint = operator.raw_operator.blueprint()
    options = {"nocl": False, "raw_scores": False}
    if blueprint.classes:
        options = container.get_options(operator.raw_operator, options)
    if options["nocl"] and not blueprint.several:
        blueprint = replace(blueprint, classes=tuple(range(len(blueprint.classes))))
    if any(column.categories for column in blueprint.columns):
        raise ExportError("models with text columns cannot be part of a pipeline; use model.to_onnx()")
    given = operator.inputs[0]
    dtype = "float64" if isinstance(given.type, DoubleTensorType) else "float32"
    graph = build(blueprint, Graph(dtype), raw=options["raw_scores"]).proto("mesh")
    graph = onnx.compose.add_prefix_graph(graph, scope.get_unique_operator_name("mesh") + "/")

    def copy(tensor: str, result: str, op: str = "Identity", **attributes: Any) -> None:
        name = scope.get_unique_operator_name(op)
        container.add_node(op, [tensor], [result], name=name, **attributes)

    if isinstance(given.type, (DoubleTensorType, FloatTensorType)):
        copy(given.full_name, graph.input[0].name)
    else:
        copy(given.full_name, graph.input[0].name, "Cast", to=onnx.TensorProto.FLOAT)
    for proto in graph.initializer:
        content = list(proto.string_data) if proto.data_type == onnx.TensorProto.STRING else proto
        container.add_initializer(proto.name, proto.data_type, list(proto.dims), content)
    container.nodes.extend(graph.node)
    container.node_domain_version_pair_sets.add(("", opset))
    for value, there in zip(graph.output, operator.outputs, strict=True):
        copy(value.name, there.full_name)
