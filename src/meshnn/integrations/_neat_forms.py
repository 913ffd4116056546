"""What the activations and aggregations of neat-python are in neurons that take sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from meshnn.errors import MeshError

__all__ = ["FORMS", "Form", "Judge", "Term", "stages"]


class Term(NamedTuple):
    """`outer * name(slope * z + shift)`, with an activation of meshnn."""

    name: str
    slope: float = 1.0
    outer: float = 1.0
    shift: float = 0.0


class Form(NamedTuple):
    """An activation of neat as a sum of terms and a constant."""

    terms: tuple[Term, ...]
    constant: float = 0.0

    @property
    def stages(self) -> int:
        """Ticks from the sum to the value, if no factor can be left to who reads it."""
        return 3 if len(self.terms) > 1 or self.constant else 1 if self.terms[0].outer == 1.0 else 2


_SELU, _ALPHA = 1.0507009873554805, 1.6732632423543772
_SQRT5 = math.sqrt(5.0)

#: Activations of neat that are exact here. Those of several terms take several neurons, joined by fixed edges.
FORMS: dict[str, Form] = {
    "identity": Form((Term("identity"),)),
    "relu": Form((Term("relu"),)),
    "elu": Form((Term("elu"),)),
    "sigmoid": Form((Term("sigmoid", 5.0),)),
    "tanh": Form((Term("tanh", 2.5),)),
    "sin": Form((Term("sin", 5.0),)),
    "gauss": Form((Term("gauss", _SQRT5),)),
    "softplus": Form((Term("softplus", 5.0, 0.2),)),
    "abs": Form((Term("relu"), Term("relu", -1.0))),
    "lelu": Form((Term("relu"), Term("relu", -1.0, -0.005))),
    "selu": Form((Term("elu", 1.0, _SELU * _ALPHA), Term("relu", 1.0, _SELU * (1.0 - _ALPHA)))),
    "clamped": Form((Term("relu", 1.0, 1.0, 1.0), Term("relu", 1.0, -1.0, -1.0)), -1.0),
    "hat": Form((Term("relu", 1.0, 1.0, 1.0), Term("relu", 1.0, -2.0), Term("relu", 1.0, 1.0, -1.0))),
}

_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "identity": lambda t: t,
    "relu": lambda t: max(t, 0.0),
    "elu": lambda t: t if t > 0.0 else math.expm1(t),
    "sigmoid": lambda t: 1.0 / (1.0 + math.exp(-t)),
    "tanh": math.tanh,
    "sin": math.sin,
    "gauss": lambda t: math.exp(-t * t),
    "softplus": lambda t: math.log1p(math.exp(t)),
}
#: Where functions of a config are tried: a name may stand for another function than neat's.
_PROBES = (-3.1, -1.4, -0.6, -0.05, 0.0, 0.3, 0.8, 2.3)


def stages(form: Form, output: bool) -> int:
    """A hidden node leaves an outer factor to who reads it."""
    return 1 if form.stages == 2 and not output else form.stages


class Judge:
    """What the functions of a config are here, or a refusal that names the node."""

    def __init__(self, settings: Any) -> None:
        self._activations, self._aggregations = settings.activation_defs, settings.aggregation_function_defs
        self._proven: set[str] = set()

    def form(self, key: int, name: str, output: bool, recurrent: bool) -> Form:
        """The activation of a node."""
        if name not in FORMS:
            raise MeshError(f"node {key} of the genome has the activation {name!r}, which meshnn has not; "
                            f"it knows {', '.join(FORMS)}")  # fmt: skip
        form = FORMS[name]
        if name not in self._proven:
            function = self._activations.get(name)
            if not all(_near(_value(form, z), function(z)) for z in _PROBES):
                raise MeshError(f"node {key} of the genome has the activation {name!r}, but in this config that is "
                                "another function than in neat-python, which meshnn cannot know")  # fmt: skip
            self._proven.add(name)
        if recurrent and stages(form, output) > 1:
            where = "an output" if output else "a node"
            raise MeshError(
                f"node {key} of the genome has the activation {name!r}, which in {where} takes {form.stages} neurons "
                "in a row here, and a recurrent network has one tick for it; use another one, such as tanh, or "
                "kind='feed_forward' if the genome has no cycle"
            )
        return form

    def gain(self, key: int, name: str, n: int) -> float:
        """What the aggregation of `n` inputs of a node is, divided by their sum."""
        tries = [float(k * k % 7) - 2.5 for k in range(1, n + 1)]
        gain = 1.0 / n if name == "mean" and n else 1.0
        if n <= 1 or name in ("sum", "mean"):  # of one input nearly all of them are that input
            try:
                function = self._aggregations.get(name)
                if all(_near(float(function([s * t for t in tries])), s * gain * sum(tries)) for s in (1.0, -1.0, 0.5)):
                    return gain
            except (ArithmeticError, IndexError, TypeError, ValueError):
                pass  # unknown, or not made for so few numbers
        raise MeshError(
            f"node {key} of the genome has the aggregation {name!r} of {n} inputs, and a neuron knows sums only (and "
            "means, which are sums with other weights); set aggregation_options = sum mean"
        )


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _value(form: Form, z: float) -> float:
    return form.constant + sum(t.outer * _FUNCTIONS[t.name](t.slope * z + t.shift) for t in form.terms)
