"""Models in `.mesh` files are restored; files without a valid model are rejected."""

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.datasets import load_iris

import meshnn
from examples import examples
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology, storage
from meshnn.loading import from_tree
from meshnn.storage import FileError


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize("mesh", [
    Mesh(Topology.mesh(2, 5, 2), random_state=0),
    Mesh(Topology.mesh(3, 4, 1, self_loops=True, bias=False), 5, ["tanh", "relu", "sin", "gauss"], "sigmoid",
         dtype="float64", random_state=1),
    Mesh(Topology.layered([3, 2]), random_state=2),
])  # fmt: skip
def test_meshes_round_trip(mesh, tmp_path):
    mesh.save(tmp_path / "a.mesh")
    again = meshnn.load(tmp_path / "a.mesh")
    for name in ("topology", "ticks", "activations", "dtype"):
        assert getattr(again, name) == getattr(mesh, name)
    X = np.random.default_rng(0).standard_normal((20, mesh.topology.n_inputs))
    np.testing.assert_array_equal(again.forward(X), mesh.forward(X))


@pytest.mark.parametrize("labels", [["b", "a", "c"], [10, 7, -3], [3.0, 1.0, 0.0], np.array(["b", "a", "c"], object)])
def test_classifiers_round_trip(iris, labels, tmp_path):
    import pandas as pd

    X, y = iris
    X = pd.DataFrame(X, columns=["a", "größe", "c c", "d"])
    named = np.asarray(labels)[y]
    weight = {named[0]: 2.0, named[60]: 1.0, named[120]: 0.5}
    model = MeshClassifier(4, max_epochs=20, random_state=np.int64(3), class_weight=weight, early_stopping=True,
                           activation=["tanh", "relu", "tanh", "elu"]).fit(X, named)  # fmt: skip
    model.save(tmp_path / "a.mesh")
    again = meshnn.load(tmp_path / "a.mesh")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype == model.classes_.dtype
    assert list(again.feature_names_in_) == ["a", "größe", "c c", "d"]
    assert again.history_ == model.history_
    assert again.get_params() == model.get_params()
    for name in ("l2_", "n_iter_", "solver_", "best_restart_"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.fit(X, named).mesh_.weights, model.mesh_.weights)  # same training


def test_regressors_and_what_cannot_be_written_down(iris, tmp_path):
    X, _ = iris
    options = {"max_epochs": 10, "random_state": 0, "callbacks": lambda row, mesh: None}
    made = MeshRegressor(mesh=lambda a, b: Topology.layered([a, 3, b]), **options)
    made.fit(X[:, :2], X[:, 2:]).save(tmp_path / "a.mesh")
    again = meshnn.load(tmp_path / "a.mesh")
    np.testing.assert_array_equal(again.predict(X[:, :2]), made.predict(X[:, :2]))
    assert again.mesh == Topology.layered([2, 3, 2])
    assert again.callbacks is None
    again.save(tmp_path / "b.mesh")
    assert (tmp_path / "b.mesh").read_bytes() == (tmp_path / "a.mesh").read_bytes()


def test_what_a_file_cannot_hold_is_refused_when_saving(iris, tmp_path):
    X, y = iris
    path = tmp_path / "a.mesh"
    model = MeshClassifier(2, max_epochs=2, random_state=0).fit(X, y)
    for options in (
        {"class_weight": {(1, 2): 3.0}},
        {"class_weight": {print: 3.0}},
        {"l1": np.inf},
        {"activation": [3j]},
    ):
        changed = MeshClassifier(**model.get_params()).set_params(**options)
        vars(changed).update({name: value for name, value in vars(model).items() if name.endswith("_")})
        changed._solver_state, changed._stream_seed = None, 0
        with pytest.raises(FileError, match=next(iter(options))):
            changed.save(path)
    for classes in ([b"a", b"b", b"c"], np.array(["2020", "2021", "2022"], "M8[Y]"), [object(), object(), object()]):
        model.classes_ = np.asarray(classes)
        with pytest.raises(FileError, match="classes_"):
            model.save(path)
    model.classes_ = np.arange(3)
    model.mesh_.weights[5] = np.nan
    with pytest.raises(MeshError, match="weight 5 is nan"):
        model.save(path)
    with pytest.raises(MeshError, match="weight 5 is nan"):
        model.mesh_.save(path)
    assert not path.exists()


@pytest.mark.parametrize("make", [MeshClassifier, MeshRegressor])
@pytest.mark.parametrize("begun", ["partial_fit", "auto", "adam"])
def test_a_stream_goes_on_after_loading(iris, make, begun, tmp_path):
    X, y = iris
    solver = "adam" if begun == "partial_fit" else begun
    model = make(4, solver=solver, random_state=0, batch_size=16, max_epochs=5)
    if begun == "partial_fit":
        model.partial_fit(X, y, **({"classes": [0, 1, 2]} if make is MeshClassifier else {}))
    else:
        model.fit(X, y)
    model.save(tmp_path / "a.mesh")
    again = meshnn.load(tmp_path / "a.mesh")
    for _ in range(2):
        model.partial_fit(X, y)
        again.partial_fit(X, y)
    np.testing.assert_array_equal(again.mesh_.weights, model.mesh_.weights)
    assert again.history_ == model.history_
    assert (again.solver_, again.l2_, again.n_iter_) == (model.solver_, model.l2_, model.n_iter_)


# -- inconsistent files with a valid checksum -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(iris, tmp_path_factory):
    """Return the tree of one file of each kind; classifier and regressor include the memory of a stream."""
    folder, (X, y) = tmp_path_factory.mktemp("files"), iris
    options = {"hidden": 3, "max_epochs": 5, "random_state": 0, "solver": "adam"}
    classifier = MeshClassifier(**options, class_weight={"a": 2.0}).fit(X, np.array(["a", "b", "c"])[y])
    classifier.partial_fit(X, np.array(["a", "b", "c"])[y]).save(folder / "classifier")
    MeshRegressor(**options).fit(X[:, :2], X[:, 2:]).partial_fit(X[:, :2], X[:, 2:]).save(folder / "regressor")
    Mesh(Topology.mesh(2, 3, 2), 3, ["tanh", "relu", "gauss"], random_state=0).save(folder / "mesh")
    return {name: storage.read(folder / name) for name in ("classifier", "regressor", "mesh")}


@pytest.fixture
def lie(files, tmp_path):
    """Change or remove an entry of a file, and check that `load` raises an error of one short line."""
    path = tmp_path / "lie.mesh"

    def lie(keys, value=None, kind="classifier", remove=False):
        tree = place = copy.deepcopy(files[kind])
        for key in keys[:-1]:
            place = place[key]
        there = place.pop(keys[-1], None)
        if not remove:
            place[keys[-1]] = np.asarray(value) if isinstance(there, np.ndarray) else value
        storage.write(path, tree)
        with pytest.raises(FileError, match=r"lie\.mesh") as refusal:
            pytest.fail(f"{keys} = {value!r} was taken: {meshnn.load(path)}")
        assert "\n" not in str(refusal.value)
        assert len(str(refusal.value)) < 500 + len(str(path))

    return lie


def test_nothing_may_be_missing(lie, files):
    for kind, tree in files.items():
        for name in tree.keys() - {"versions", "importances"}:
            lie([name], kind=kind, remove=True)
    for keys in (
        ["mesh"],
        ["preprocessing"],
        ["history"],
        ["stream"],
        ["preprocessing", "scaling"],
        ["stream", "memory"],
    ):
        part = files["classifier"]
        for key in keys:
            part = part[key]
        for name in part.keys() - {"names"}:
            lie([*keys, name], remove=True)


SCALES = ([], np.zeros(3, np.float32), np.full(4, np.inf), np.full((4, 1), 1.0), np.full(7, 1.0))
LABELS = {"dtype": "<U1", "values": ["a", "b", "c"]}
COLUMN = {"name": "x", "kind": "numeric", "categories": [], "fill": None, "other": False, "origin": ""}
LIES = {
    "kind": ("forest", ["classifier"], "m" * 10_000, "regressor", "mesh"),
    **{f"mesh {name}": (-1, 10**6, 10**12, 10**30, "3", None, 2.5, True, [3])
       for name in ("n_inputs", "n_hidden", "n_outputs", "ticks")},
    **{f"mesh {name} ": (0, 2) for name in ("n_inputs", "n_outputs")},
    "mesh n_hidden ": (2,),
    "mesh ticks ": (0,),
    "mesh bias": (False, 1, None),
    "mesh dtype": ("float16", "O", "f4,f4", "(((", "a5", 5, None, {"names": ["a"]}, "float64\n"),
    "mesh activations": ([], ["tanh"], ["identity", "tan"], ["identity", 5], "tanh", None, [["tanh"]]),
    **{f"preprocessing scaling {name}": SCALES for name in ("x_mean", "x_scale", "y_mean", "y_scale")},
    "classes": (
        *(LABELS | {"values": values} for values in (["a", "b"], ["c", "b", "a"], ["a", "a", "b"],
                                                     ["a", "b", 3], 5, [["a"], "b", "c"])),
        *(LABELS | {"dtype": dtype} for dtype in ("V8", "<U0", "<f8", 5)),
        {"dtype": "|O", "values": ["a", 1, None]}, {"dtype": "|O", "values": [{}, []]},
        *(np.asarray(value) for value in ([0, 1], [0, 1, 1], [2, 1, 0], [0.0, 1.0, np.nan], np.zeros((3, 1)), 5)),
    ),
    "preprocessing names": (["a"], "abcd", [1, 2, 3, 4], None, {"a": 1}),
    "preprocessing n_features": (7, "4", None, 0),
    "preprocessing encoder": (None, {"columns": "all"}, {"impute": False, "columns": [], "left_out": {}},
                              {"impute": False, "columns": [COLUMN], "left_out": {}}),
    "target": (5,),
    "n_iter": ("many", -1, 1.5, None),
    "best_restart": (-1, "0"),
    "l2": (-1.0, "auto", None),
    "solver": (["lm"], "ab", ["lm", 5], None, ["lm", ""], ["no", ""]),
    "history": (5, [], None),
    "history epoch": (np.zeros(2), np.full(6, np.nan), np.full(6, np.inf), np.zeros((6, 1)), 5),
    "history note": (5, ["a"], [1] * 6, "abcdef"),
    "parameters": ([1, 2], None, 5, {"class_weight": {"pairs": [[[], 1]]}}, {"class_weight": {"pear": 1}}),
    "stream": (None, {}, {"seed": -1, "memory": None}, {"seed": 1, "memory": 5}, {"seed": 1, "memory": {}}),
    "stream memory factor": (0, 2.0, "1", None),
    "stream memory moments done": (-1, 2.5, 2**70, None),
    "stream memory moments random": (None, 5, {}),
    **{f"stream memory moments {name}": (np.zeros(1), np.zeros(10_000), np.zeros((9, 1)), np.zeros(1, np.int64))
       for name in ("first", "second")},
}  # fmt: skip


@pytest.mark.parametrize("place", LIES)
def test_lies(lie, place):
    for value in LIES[place]:
        lie(place.split(), value)


def test_lies_that_depend_on_the_file(lie, files):
    mesh, random = files["classifier"]["mesh"], files["classifier"]["stream"]["memory"]["moments"]["random"]
    n, kinds, src = len(mesh["weights"]), mesh["kinds"], mesh["src"]
    cases = {
        "kinds": (kinds[:-1], kinds.astype(np.int64), kinds[None], np.full_like(kinds, 200)),
        "weights": (mesh["weights"][:-1], np.full(n, np.nan), np.zeros((n, 2)), np.zeros(n, bool)[:0]),
        "src": (src[:-1], np.full(n, 10**6), np.full(n, -1), src + 0.5, np.full(n, 2**63, np.uint64), src[None],
                src[::-1].copy(), src[:1].repeat(n)),
    }  # fmt: skip
    dst = mesh["dst"]
    lie(["mesh"], mesh | {"src": src[::-1].copy(), "dst": dst[::-1].copy()})  # not sorted
    lie(["mesh"], mesh | {"src": src[:1].repeat(n), "dst": dst[:1].repeat(n)})  # the same edge twice
    for name, values in cases.items():
        for value in values:
            lie(["mesh", name], value)
    for change in (
        {"bit_generator": "MT19937"},
        {"state": {}},
        {"state": {"state": "a", "inc": 1}},
        {"has_uint32": "x"},
    ):
        lie(["stream", "memory", "moments", "random"], random | change)
    lie(["kind"], "classifier", kind="regressor")
    lie(["kind"], "classifier", kind="mesh")
    lie(["preprocessing", "scaling", "y_scale"], np.array([-1.0, 1.0]), kind="regressor")
    for value in (1, None, "no", True):
        lie(["flat"], value, kind="regressor")


def test_a_small_file_cannot_ask_for_much_memory(lie, files):
    """Sizes are compared with the data before anything is allocated."""
    import time
    import tracemalloc

    tree = copy.deepcopy(files["classifier"])
    tree["classes"]["dtype"] = "<U999999999"
    tracemalloc.start()
    began = time.perf_counter()
    for name, value in (("n_hidden", 50_000_000), ("n_inputs", 50_000_000), ("n_outputs", 3_000_000_000)):
        lie(["mesh", name], value)
        lie([name], value, kind="mesh")
    model = from_tree("wide.mesh", tree)  # a valid dtype for labels, but not the stored one
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.perf_counter() - began < 5
    assert peak < 50_000_000
    assert model.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(("name", "value"), [
    ("solver", 5), ("hidden", ["x"]), ("batch_size", {"pairs": [[1, 2]]}), ("mesh", "chain"), ("class_weight", "many"),
    ("random_state", [1]), ("early_stopping", "x"), ("callbacks", "x"), ("n_jobs", "2"),
])  # fmt: skip
def test_parameters_are_looked_at_by_the_next_fit(files, iris, name, value):
    tree = copy.deepcopy(files["classifier"])
    tree["parameters"] |= {name: value, "warp_drive": True}  # of a later version
    model = from_tree("a.mesh", tree | {"training": {"run": 5}, "extra": [1]})
    assert not hasattr(model, "warp_drive")
    with pytest.raises(MeshError, match=name):
        model.fit(iris[0], np.array(["a", "b", "c"])[iris[1]])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
SMALL = st.integers(-2, 9)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def odd_arrays(draw):
    dtype = draw(st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]))
    return draw(npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=70)))


@pytest.mark.parametrize("kind", ["classifier", "regressor", "mesh"])
@examples(150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_file_is_refused_or_works(kind, files, tmp_path_factory, data):
    """Kernels trust lengths, so any edited file must raise an error or give a valid model."""
    tree = copy.deepcopy(files[kind])
    inside, chosen = tree, data.draw(st.sampled_from([place for place in places(tree) if place]))
    for key in chosen[:-1]:
        inside = inside[key]
    inside[chosen[-1]] = data.draw(odd_arrays() if data.draw(st.integers(0, 3)) == 0 else JSON | SMALL)
    path = tmp_path_factory.getbasetemp() / "any.mesh"
    storage.write(path, tree)
    try:
        model = meshnn.load(path)
    except FileError:
        return
    X = np.linspace(-1, 1, 40)
    try:
        if isinstance(model, Mesh):
            model.forward(np.resize(X, (10, model.topology.n_inputs)))
            return
        str(model.history_)
        X = np.resize(X, (10, model.n_features_in_))
        found = model.predict(X)
        assert len(found) == 10
        if hasattr(model, "partial_fit"):
            model.partial_fit(X, found)
        model.save(path)
        meshnn.load(path)
    except ValueError:  # includes MeshError, and scikit-learn's errors for invalid feature names
        pass
