"""What the estimators inherit from scikit-learn, which has no types: what type checkers see of it, and what runs.

A class with a base that a checker knows nothing of has any parameter and any method for it, misspelt ones included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import Self

    _Method = TypeVar("_Method", bound=Callable[..., Any])

    class BaseEstimator:
        """Parameters by name."""

        n_features_in_: int

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Parameters and their values."""

        def set_params(self, **params: Any) -> Self:
            """Change parameters."""

        def get_metadata_routing(self) -> Any:
            """Which of the arguments of methods are asked for."""

        def __sklearn_tags__(self) -> Any: ...

    class ClassifierMixin:
        """A classifier."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """Mean accuracy."""

        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin:
        """A regressor."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """R²."""

        def __sklearn_tags__(self) -> Any: ...

    def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]:
        """A method that is there if the check says so."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.metaestimators import available_if

__all__ = ["BaseEstimator", "ClassifierMixin", "RegressorMixin", "available_if"]
