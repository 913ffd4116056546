"""Estimators of sequences used in sktime."""

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():  # warnings of imported packages
    warnings.simplefilter("ignore")
    import pandas as pd
    import sktime.classification.base
    import sktime.regression.base  # noqa: F401

    from meshnn.integrations.sktime import MeshTimeSeriesClassifier, MeshTimeSeriesRegressor

from meshnn import MeshSequenceClassifier, MeshSequenceRegressor

pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = [(MeshTimeSeriesClassifier, MeshSequenceClassifier), (MeshTimeSeriesRegressor, MeshSequenceRegressor)]
QUICK = {"hidden": 3, "max_epochs": 3, "l2": 1e-3, "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MeshTimeSeriesClassifier, MeshTimeSeriesRegressor])
def test_all_checks_of_sktime(kind):
    from sktime.utils.estimator_checks import check_estimator

    found = check_estimator(kind, verbose=False)
    assert len(found) > 100
    assert {name: result for name, result in found.items() if result != "PASSED"} == {}


@pytest.mark.parametrize(("kind", "own"), KINDS)
def test_panels_are_sequences(kind, own):
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((rng.integers(3, 8), 2)) for _ in range(10)]
    y = np.arange(10) % 2 if kind is MeshTimeSeriesClassifier else rng.standard_normal(10)
    frames = [pd.DataFrame(part, columns=["a", "b"]) for part in parts]
    net = own(**QUICK)
    model, want = kind(net).fit(frames, y), own(**QUICK).fit(parts, y)
    np.testing.assert_array_equal(model.predict(frames), want.predict(parts))
    even = np.stack([part[:3] for part in parts])  # in sktime time is the last axis
    np.testing.assert_array_equal(model.predict(even.transpose(0, 2, 1)), want.predict(even))
    assert model.estimator is net
    assert not hasattr(net, "mesh_")


@pytest.mark.parametrize(("kind", "own"), KINDS)
def test_the_estimator_has_the_parameters(kind, own):
    model = kind(own(hidden=3)).set_params(estimator__hidden=5)
    assert model.get_params()["estimator__hidden"] == 5
    assert type(kind().set_params(estimator=None).fit(np.zeros((4, 1, 3)), np.arange(4) % 2).estimator_) is own
    with pytest.raises(ValueError, match="readout"):
        kind(own(readout="all")).fit(np.zeros((4, 1, 3)), np.arange(4) % 2)
