"""DataFrames with text, categories and missing values: estimators encode them like `meshnn fit`."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

import meshnn
from meshnn import MeshClassifier, MeshError, MeshRegressor
from meshnn.tables.encoder import Encoder
from meshnn.tables.holdout import HoldoutSplit

RNG = np.random.default_rng(0)
SIZE = RNG.normal(size=120)
TOWN = RNG.choice(["Rom", "Köln", "Oslo"], 120)
FRAME = pd.DataFrame({"size": SIZE, "town": TOWN, "sold": RNG.normal(size=120) < SIZE})
Y = np.where((TOWN == "Rom") ^ (SIZE > 0), "yes", "no")
GAPS = FRAME.mask(RNG.random(FRAME.shape) < 0.1)
OPTIONS = {"hidden": 3, "max_epochs": 20, "random_state": 0}


def fit(frame, make=MeshClassifier, **options):
    return make(**OPTIONS | options).fit(frame, Y if make is MeshClassifier else SIZE)


@pytest.mark.parametrize("frame", [FRAME, GAPS, FRAME.astype({"town": "category"})])
@pytest.mark.parametrize("make", [MeshClassifier, MeshRegressor])
def test_a_table_is_encoded_as_the_command_line_does_it(frame, make):
    model = fit(frame, make)
    encoder = Encoder.learn(pa.Table.from_pandas(frame), None, impute=True)
    assert model.encoder_ == encoder
    by_hand = make(**OPTIONS).fit(encoder.encode(pa.Table.from_pandas(frame)).X, Y if make is MeshClassifier else SIZE)
    np.testing.assert_array_equal(model.mesh_.weights, by_hand.mesh_.weights)
    np.testing.assert_array_equal(model.predict(frame), by_hand.predict(encoder.encode(pa.Table.from_pandas(frame)).X))
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["size", "town", "sold"]
    assert model.mesh_.topology.n_inputs == 5


def test_columns_are_found_by_name():
    model = fit(GAPS)
    want = model.predict_proba(GAPS)
    shuffled = GAPS.assign(more=1)[["sold", "more", "town", "size"]]
    np.testing.assert_array_equal(model.predict_proba(shuffled), want)
    np.testing.assert_array_equal(model.predict_proba(pa.Table.from_pandas(GAPS)), want)
    np.testing.assert_array_equal(
        MeshClassifier(**OPTIONS).fit(pa.Table.from_pandas(GAPS), Y).predict_proba(GAPS), want
    )
    with pytest.raises(MeshError, match="no column town"):
        model.predict(GAPS[["size", "sold"]])
    with pytest.raises(MeshError, match="size, town, sold"):
        model.predict(np.zeros((2, 5)))
    with pytest.warns(UserWarning, match="values of town never seen in training, e.g. 'Bonn'"):
        model.predict(GAPS.assign(town="Bonn"))


@pytest.mark.parametrize("table", [lambda frame: frame, lambda frame: pa.Table.from_pandas(frame)])
@pytest.mark.parametrize("make", [MeshClassifier, MeshRegressor])
def test_frames_of_numbers_follow_the_same_rule(make, table):
    """Features are bit-identical to those of an array, but matched by name, imputed, and without constant columns."""
    numbers = FRAME[["size", "sold"]].assign(same=3)
    model, plain = fit(table(numbers), make), fit(numbers[["size", "sold"]].to_numpy(float), make)
    np.testing.assert_array_equal(model.mesh_.weights, plain.mesh_.weights)
    want = plain.predict(numbers[["size", "sold"]].to_numpy(float))
    np.testing.assert_array_equal(model.predict(table(numbers)), want)
    shuffled = numbers.assign(more="x")[["same", "more", "sold", "size"]]
    np.testing.assert_array_equal(model.predict(table(shuffled)), want)
    with pytest.warns(UserWarning, match=f"{make.__name__} was fitted with feature names"):
        np.testing.assert_array_equal(model.predict(numbers[["size", "sold"]].to_numpy(float)), want)
    gaps = numbers.assign(size=np.nan)
    np.testing.assert_array_equal(
        model.predict(table(gaps)), model.predict(table(numbers.assign(size=np.median(SIZE))))
    )
    with pytest.raises(MeshError, match="no column sold"):
        model.predict(table(numbers.drop(columns="sold")))
    nullable = numbers.astype({"size": "Float64", "sold": "boolean"})
    np.testing.assert_array_equal(fit(table(nullable), make).mesh_.weights, plain.mesh_.weights)


@pytest.mark.parametrize("table", [lambda frame: frame, pa.Table.from_pandas], ids=["pandas", "pyarrow"])
def test_the_rarest_categories_share_a_feature(table, tmp_path):
    """Of 12 towns that occur 12, 11, ... and 1 times, at most 4 levels are kept: 3 towns and one for all others."""
    towns = np.repeat([f"town {k}" for k in range(12)], np.arange(12, 0, -1))
    frame, y = table(pd.DataFrame({"town": towns, "size": np.arange(78.0)})), np.arange(78) % 2
    options = {"hidden": 2, "solver": "adam", "l2": 0.0, "max_epochs": 2, "random_state": 0}
    with pytest.warns(UserWarning, match="the 9 rarest"):
        model = MeshClassifier(**options, max_categories=4).fit(frame, y)
    assert model.mesh_.topology.n_inputs == len(model.encoder_.feature_names) == 5
    assert model.n_features_in_ == 2
    model.save(tmp_path / "a.mesh")
    assert meshnn.load(tmp_path / "a.mesh").max_categories == 4
    for wrong in (0, 1, 2.5, "few", True):
        with pytest.raises(MeshError, match=f"max_categories .*{wrong}"):
            MeshClassifier(**options, max_categories=wrong).fit(frame, y)


def test_columns_without_names_are_numbered():
    frame = pd.DataFrame(FRAME[["size", "sold"]].to_numpy(float))
    model = fit(frame)
    assert not hasattr(model, "feature_names_in_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(frame.to_numpy()), model.predict(frame[[1, 0]]))


def test_nothing_is_learned_from_what_is_held_out():
    model = fit(GAPS, early_stopping=True, l2=1e-3)
    seed = int(np.random.SeedSequence(0).generate_state(3)[0])
    split = HoldoutSplit.stratified(120, 12, seed, Y)
    kept, held_out = split.kept, split.held
    assert model.encoder_ == Encoder.learn(pa.Table.from_pandas(GAPS).take(kept), None, impute=True)
    odd = GAPS.copy()
    odd.iloc[held_out, 0] = 1e6
    odd.iloc[held_out[0], 1] = "Bonn"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = fit(odd, early_stopping=True, l2=1e-3)
    assert again.encoder_ == model.encoder_
    np.testing.assert_array_equal(again.history_["loss"][:3], model.history_["loss"][:3])


def test_every_fit_has_its_own_encoder():
    model = fit(FRAME).fit(np.stack([SIZE, SIZE**2], axis=1), Y)
    assert not hasattr(model, "encoder_")
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    warm = fit(FRAME, warm_start=True)
    encoder = warm.encoder_
    with pytest.warns(UserWarning, match="never seen"):
        warm.fit(FRAME.replace("Oslo", "Bonn"), Y)
    assert warm.encoder_ is encoder


def test_pickles_clones_and_files(tmp_path):
    model = fit(GAPS)
    want = model.predict(GAPS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(GAPS), want)
    assert not hasattr(clone(model), "encoder_")
    model.save(tmp_path / "m.mesh")
    again = meshnn.load(tmp_path / "m.mesh")
    np.testing.assert_array_equal(again.predict(GAPS[["town", "sold", "size"]]), want)
    assert again.encoder_ == model.encoder_
    assert again.feature_names_in_.tolist() == ["size", "town", "sold"]
    GAPS.to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(again.predict(tmp_path / "t.parquet"), want)
    tree = meshnn.storage.read(tmp_path / "m.mesh")
    tree["preprocessing"]["names"][0] = "sizes"
    meshnn.storage.write(tmp_path / "odd.mesh", tree)
    with pytest.raises(MeshError, match="columns"):
        meshnn.load(tmp_path / "odd.mesh")


def test_importances_are_those_of_the_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"text": rng.choice(["a", "b", "c"], 100), "same": 1.0, "number": rng.normal(size=100)})
    model = MeshClassifier(hidden=3, l2=0.01, max_epochs=30, random_state=0).fit(frame, frame["number"] > 0)
    assert model.feature_importances_.shape == (3,) == model.feature_names_in_.shape
    assert model.feature_importances_[1] == 0
    assert model.feature_importances_.argmax() == 2
    assert np.isclose(model.feature_importances_.sum(), 1)
