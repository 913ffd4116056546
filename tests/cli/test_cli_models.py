"""Models on the command line: in a real process where it matters, in this one for the many refusals."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import in_a_process, meshnn
from meshnn import Topology


@pytest.fixture
def refused(capsys):
    """Run a command in this process: it must end with exit code 2 and one line on stderr, which is returned."""
    from meshnn.cli import main

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        assert stop.value.code == 2, (arguments, found)
        last = found.err.strip().splitlines()[-1]
        assert last.startswith("meshnn: "), found.err
        assert "Traceback" not in found.err
        return last

    return run


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Real files: iris with names, spirals with odd names in an odd place, a table of mixed columns, numbers."""
    import numpy as np
    import pandas as pd
    from sklearn.datasets import load_diabetes, load_iris

    from meshnn.tables.synthetic import spirals

    folder = tmp_path_factory.mktemp("with spaces and ü")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target").assign(species=[iris.target_names[k] for k in iris.target])
    frame.to_csv(folder / "iris.csv", index=False)
    X, y = spirals(800, random_state=0)
    spiral = pd.DataFrame({"größe x": X[:, 0], "höhe": X[:, 1], "Klasse": np.where(y == 1, "rot", "blau")})
    spiral.to_csv(folder / "zwei spiralen.csv.gz", index=False)
    load_diabetes(as_frame=True).frame.to_parquet(folder / "diabetes.parquet")
    rng = np.random.default_rng(0)
    mixed = pd.DataFrame({
        "age": rng.integers(20, 70, 120).astype(float),
        "city": rng.choice(["Bonn", "Köln", "Rom"], 120),
        "same": 7,
        "member": rng.integers(0, 2, 120).astype(bool),
    })  # fmt: skip
    mixed["pays"] = np.where((mixed.city == "Rom") ^ (mixed.age > 45), "yes", "no")
    mixed.to_csv(folder / "mixed.tsv", sep="\t", index=False)
    holes = mixed.copy()
    holes.loc[[3, 5], "age"] = np.nan
    holes.loc[[7], "city"] = None
    holes.to_csv(folder / "holes.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def iris_model(tables):
    done = in_a_process("fit", str(tables / "iris.csv"), "--target", "species", "--out", str(tables / "iris.mesh"))
    assert done.returncode == 0, done.stderr
    return tables / "iris.mesh", done


def test_fit_reports_and_writes(iris_model):
    path, done = iris_model
    assert path.exists()
    assert "test accuracy" in done.stdout
    assert "95% interval" in done.stdout
    assert "versicolor" in done.stdout
    assert "edges (" in done.stdout
    assert re.search(r"solver adam \(\d+ edges would overfit 105 noisy samples; l2 .* \(held-out", done.stdout)
    assert done.stdout.count("held-out loss") == 1
    assert "105 rows to learn from, 45 to test on" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr  # no terminal, no colours


def test_predict_to_screen_file_and_json(iris_model, tables):
    path, _ = iris_model
    done = in_a_process("predict", str(path), str(tables / "iris.csv"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "prediction"
    assert len(lines) == 151
    assert "predictions agree with it" in done.stderr
    out = tables / "predicted.parquet"
    again = meshnn("predict", str(path), str(tables / "iris.csv"), "--probabilities", "--out", str(out))
    assert again.returncode == 0, again.stderr
    import pandas as pd

    frame = pd.read_parquet(out)
    assert list(frame) == ["prediction", "P(setosa)", "P(versicolor)", "P(virginica)"]
    assert frame.prediction.tolist() == lines[1:]
    assert frame.iloc[:, 1:].sum(axis=1).sub(1).abs().max() < 1e-9
    found = json.loads(meshnn("predict", str(path), str(tables / "iris.csv"), "--json").stdout)
    assert found["prediction"] == lines[1:]


@pytest.mark.slow
def test_info_explain_and_plot(iris_model, tables):
    path, _ = iris_model
    shown = meshnn("info", str(path))
    for text in ("classifier", "setosa; versicolor; virginica", "petal width (cm): number", "written with"):
        assert text in " ".join(shown.stdout.split())
    facts = json.loads(meshnn("info", str(path), "--json").stdout)
    assert facts["edges"] == Topology.mesh(4, 32, 3).n_edges
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    explained = meshnn("explain", str(path), "--samples", "105")
    assert re.search(r"On 105 samples the solver is adam: \d+ edges would overfit 105 noisy samples", explained.stdout)
    explained = meshnn("explain", "--hidden", "3", "--samples", "500").stdout
    assert "On 500 samples the solver is adam: classes are learned by steps; lm is tried" in explained
    assert "leave sizes" in meshnn("explain", str(path), "--hidden", "3").stderr
    for name in ("net.svg", "net.png", "net.pdf"):
        done = meshnn("plot", str(path), "--out", str(tables / name))
        assert done.returncode == 0, done.stderr
        assert (tables / name).stat().st_size > 5000
    wrong = meshnn("plot", str(path), "--what", "regions", "--out", str(tables / "r.png"))
    assert wrong.returncode == 2
    assert "two features" in wrong.stderr


@pytest.mark.slow
def test_names_that_are_not_ascii_and_regions(tables):
    data, model = str(tables / "zwei spiralen.csv.gz"), str(tables / "zwei spiralen.mesh")
    done = meshnn("fit", data, "--target", "Klasse", "--hidden", "8", "--out", model, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["features"] == ["größe x", "höhe"]
    assert report["test"]["accuracy"] > 0.6  # of two classes of one size
    assert report["test"]["low"] <= report["test"]["accuracy"] <= report["test"]["high"]
    picture = tables / "regionen.png"
    assert meshnn("plot", model, "--data", data, "--out", str(picture)).returncode == 0
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    assert pixels.std() > 0.1


def test_regression_from_parquet(tables):
    done = meshnn("fit", str(tables / "diabetes.parquet"), "--target", "target", "--hidden", "4", "--json")
    report = json.loads(done.stdout)
    assert report["task"] == "regress"
    assert 0 < report["test"]["R2"] < 0.9
    assert report["test"]["low"] <= report["test"]["R2"] <= report["test"]["high"]
    assert report["model"] == "diabetes.mesh"
    again = meshnn("fit", str(tables / "diabetes.parquet"), "--target", "target", "--hidden", "4", "--json")
    assert json.loads(again.stdout)["model"] == "diabetes-1.mesh"  # nothing is written over that nobody has named
    assert Path("diabetes.mesh").is_file()


def test_mixed_columns_and_missing_values(tables):
    done = meshnn("fit", str(tables / "mixed.tsv"), "--target", "pays", "--json")
    report = json.loads(done.stdout)
    assert report["features"] == ["age", "city=Bonn", "city=Köln", "city=Rom", "member"]
    assert any("same is constant" in note for note in report["notes"])
    assert 0 <= report["test"]["accuracy"] <= 1
    model = str(tables / "holes.mesh")
    filled = meshnn("fit", str(tables / "holes.csv"), "--target", "pays", "--out", model, "--json")
    assert any("3 missing values in 2 columns (age, city)" in note for note in json.loads(filled.stdout)["notes"])
    assert meshnn("predict", model, str(tables / "holes.csv")).returncode == 0


@pytest.mark.slow
def test_topologies_from_files(tables, refused):
    import networkx as nx
    import numpy as np
    from scipy import sparse

    from meshnn import Topology

    t = Topology.layered([4, 6, 3])
    (tables / "graph.json").write_text(json.dumps(t.to_dict()))
    nx.write_graphml(t.to_networkx(), tables / "graph.graphml")
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = 1
    np.savez(tables / "graph.npz", A=A, bias=True)
    sparse.save_npz(tables / "sparse.npz", sparse.csr_array(np.triu(np.ones((9, 9)), 1)))
    edges = {"graph.json": 51, "graph.graphml": 51, "graph.npz": 51, "sparse.npz": 36}
    for name, count in edges.items():
        done = meshnn("fit", str(tables / "iris.csv"), "--target", "species", "--mesh", str(tables / name),
                      "--max-epochs", "5", "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["edges"] == count
    (tables / "small.json").write_text(json.dumps(Topology.layered([2, 3]).to_dict()))
    (tables / "broken.json").write_text("{")
    (tables / "broken.graphml").write_text("<graphml>")
    (tables / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    for name, message in [
        ("small.json", "has 2 inputs and 3 outputs, but the data have 4 features"),
        ("broken.json", "does not hold a graph"),
        ("broken.graphml", "does not hold a graph"),
        ("broken.npz", "this is not an .npz file; write it with np.savez"),
        ("iris.csv", "the endings that work are .json"),
        ("nothing.json", "there is no file"),
    ]:
        assert message in refused("fit", tables / "iris.csv", "--target", "species", "--mesh", tables / name)


def bad_tables(folder):
    (folder / "empty.csv").write_text("")
    (folder / "one.csv").write_text("a,b\n1,2\n")
    (folder / "class.csv").write_text("a,b\n" + "".join(f"{k},x\n" for k in range(30)))
    (folder / "ids.csv").write_text("a,b\n" + "".join(f"{k},name{k}\n" for k in range(10_000)))
    (folder / "constant.csv").write_text("a,b\n" + "".join(f"1,{'xy'[k % 2]}\n" for k in range(30)))
    (folder / "text.parquet").write_text("a,b\n1,2\n")
    return folder


@pytest.mark.parametrize(("name", "target", "message"), [
    ("empty.csv", "b", "is empty"),
    ("one.csv", "b", "row"),
    ("class.csv", "b", "class"),
    ("ids.csv", "b", "identifier"),
    ("constant.csv", "b", "constant"),
    ("text.parquet", "b", "text.parquet"),
    ("", "b", "text.parquet cannot be read"),
    ("missing.csv", "b", "missing.csv"),
    ("class.csv", "c", "there is no column c; the columns are a, b"),
])  # fmt: skip
def test_odd_tables_are_answered_in_one_line(tmp_path, refused, name, target, message):
    assert message in refused("fit", bad_tables(tmp_path) / name, "--target", target)


@pytest.mark.slow
def test_wrong_files_and_options(iris_model, tables, tmp_path, refused):
    path, _ = iris_model
    csv = str(tables / "iris.csv")
    (tmp_path / "cut.mesh").write_bytes(path.read_bytes()[:-100])
    spoilt = bytearray(path.read_bytes())
    spoilt[-50] ^= 1
    (tmp_path / "spoilt.mesh").write_bytes(spoilt)
    for arguments, message in [
        (("predict", str(tmp_path / "cut.mesh"), csv), "damaged"),
        (("predict", str(tmp_path / "spoilt.mesh"), csv), "checksum"),
        (("predict", csv, csv), "is not a .mesh file"),
        (("predict", str(path), str(tables / "mixed.tsv")), "sepal length (cm)"),
        (("info", str(tmp_path)), "directory"),
        (("fit", csv, "--target", "species", "--out", str(tmp_path / "no" / "m.mesh")), "does not exist"),
        (("fit", csv, "--target", "species", "--out", str(tmp_path)), "is a directory"),
        (("fit", csv, "--target", "species", "--out", str(tmp_path / "m.txt")), "should end in .mesh"),
        (("fit", csv, "--target", "specie"), "species"),
        (("fit", csv, "--target", "species", "--test", "1.5"), "--test"),
        (("fit", csv, "--target", "species", "--test", "0.999"), "lower it"),
        (("fit", csv, "--target", "species", "--hidden", "-3"), "--hidden must be a whole number"),
        (("fit", csv, "--target", "species", "--activation", "tanx"), "did you mean 'tanh'"),
        (("fit", csv, "--target", "species", "--hidden", "3", "--mesh", "x.json"), "leave --hidden out"),
        (("plot", str(path), "--out", str(tmp_path / "net.bmp")), ".svg"),
        (("plot", str(path), "--out", str(tmp_path / "n.png"), "--data", csv), "two features"),
    ]:
        assert message in refused(*arguments)
    real = in_a_process("predict", csv, csv)
    assert real.returncode == 2
    assert real.stderr.startswith("meshnn: ")
    assert real.stderr.count("\n") == 1
    assert "Traceback" in in_a_process("--debug", "predict", csv, csv).stderr


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
from pathlib import Path
from meshnn.training.trainer import Trainer
rows = Trainer.rows
def waiting(self):
    for row in rows(self):
        yield row
        if row.epoch == 7:
            Path(sys.argv[1]).touch()
            sys.stdin.readline()
Trainer.rows = waiting
from meshnn.cli import main
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_keeps_the_model_and_a_checkpoint_resumes(tables, tmp_path, number, code):
    """The process waits after its seventh epoch until the signal comes."""
    import meshnn as library

    def arguments(model):
        return ["fit", str(tables / "zwei spiralen.csv.gz"), "--target", "Klasse", "--solver", "adam",
                "--max-epochs", "60", "--tol", "0", "--out", str(tmp_path / model), "--json",
                "--checkpoint", str(tmp_path / f"{model}.checkpoint")]  # fmt: skip

    command = [sys.executable, "-c", WAITING, str(tmp_path / "here"), *arguments("a.mesh")]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    while not (tmp_path / "here").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == code, errors
    assert any("interrupted" in note for note in json.loads(out)["notes"])
    assert any("to go on" in note for note in json.loads(out)["notes"])
    assert len(library.load(tmp_path / "a.mesh").history_) == 7
    for model in ("a.mesh", "b.mesh"):
        done = meshnn(*arguments(model))
        assert done.returncode == 0, done.stderr
    resumed, whole = library.load(tmp_path / "a.mesh"), library.load(tmp_path / "b.mesh")
    assert (resumed.mesh_.weights == whole.mesh_.weights).all()
    assert resumed.history_ == whole.history_
    longer = meshnn(*arguments("a.mesh"), "--max-epochs", "62")
    assert longer.returncode == 0, longer.stderr
    assert json.loads(longer.stdout)["epochs"] == 62
    assert any("max_epochs was 60" in note for note in json.loads(longer.stdout)["notes"])


def test_usage_errors_are_one_line(refused, tables):
    iris = tables / "iris.csv"
    for arguments, message in (
        (["fit"], "see meshnn fit --help"),
        (["fit", iris], "Missing option '--target'"),
        (["fitt"], "No such command 'fitt'. Did you mean 'fit'"),
        (["fit", iris, "--target", "species", "--hidden", "ten"], "--hidden must be a whole number"),
        (["fit", iris, "--target", "species", "--solver", "foo"], "is not one of"),
        (["fit", iris, "--target", "species", "--max-epochs", "0"], "--max-epochs"),
        (["fit", iris, "--target", "species", "--n-restarts", "0"], "--n-restarts"),
        (["fit", iris, "--target", "species", "--l1", "0.1", "--solver", "lm"], "adam"),
        (["fit", iris, "--target", "species", "--seed", str(2**40)], "'--random-state'"),
        (["fit", iris, "--target", "species", "--out", "a.mesh", "--checkpoint", "a.mesh"], "name the same file"),
    ):
        assert message in refused(*arguments), arguments


def test_a_model_of_a_table_takes_data_frames(tables, iris_model):
    """Columns are found by name, whatever their order; text is encoded as in training."""
    import numpy as np
    import pandas as pd

    import meshnn as library

    model = library.load(iris_model[0])
    frame = pd.read_csv(tables / "iris.csv")
    straight = model.predict_proba(frame.drop(columns="species"))
    np.testing.assert_array_equal(model.predict_proba(frame[frame.columns[::-1]]), straight)
    with pytest.warns(UserWarning, match="feature names"):
        assert np.array_equal(model.predict_proba(frame.drop(columns="species").to_numpy()), straight)
    with pytest.raises(ValueError, match="there is no column petal width"):
        model.predict(frame.drop(columns="petal width (cm)"))
    done = meshnn(
        "fit", str(tables / "mixed.tsv"), "--target", "pays", "--out", str(tables / "m.mesh"), "--max-epochs", "9"
    )
    assert done.returncode == 0, done.stderr
    mixed = pd.read_csv(tables / "mixed.tsv", sep="\t")
    said = meshnn("predict", str(tables / "m.mesh"), str(tables / "mixed.tsv"), "--json")
    assert json.loads(said.stdout)["prediction"] == library.load(tables / "m.mesh").predict(mixed).tolist()


@pytest.mark.slow
def test_interrupted_before_the_first_row(tables, tmp_path):
    """Nothing was learned: exit code 130, and no model that looks as if something had been."""
    program = f"""
import sys
from meshnn.training import trainer
def interrupt(*arguments): raise KeyboardInterrupt
trainer.Trainer._advance = interrupt
from meshnn.cli import main
main(["fit", {str(tables / "iris.csv")!r}, "--target", "species", "--out", {str(tmp_path / "x.mesh")!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130, done.stderr
    assert "nothing was learned" in done.stderr
    assert not (tmp_path / "x.mesh").exists()


@pytest.mark.slow
def test_a_budget_of_edges_and_growth(tables, tmp_path, refused, iris_model):
    iris = str(tables / "iris.csv")
    arguments = ("fit", iris, "--target", "species", "--json", "--seed", "1", "--max-epochs", "60")
    done = meshnn(*arguments, "--hidden", "8", "--edges", "50", "--out", str(tmp_path / "small.mesh"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["edges"] == 50
    assert report["test"]["accuracy"] > 0.5  # of three classes of one size
    for name in ("a.png", "a.gif"):
        drawn = meshnn("plot", str(tmp_path / "small.mesh"), "--what", "topology", "--out", str(tmp_path / name))
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / name).stat().st_size > 5000
    done = meshnn(*arguments, "--hidden", "6", "--grow", "--out", str(tmp_path / "grown.mesh"))
    assert done.returncode == 0, done.stderr
    assert 2 <= json.loads(done.stdout)["hidden"] <= 6
    assert "leave --mesh out" in refused("fit", iris, "--target", "species", "--grow", "--mesh", tmp_path / "g.json")
    assert "did not change in training" in refused(
        "plot", iris_model[0], "--what", "topology", "--out", tmp_path / "b.png"
    )
    assert "cannot end with 9999 edges" in refused("fit", iris, "--target", "species", "--edges", "9999")
