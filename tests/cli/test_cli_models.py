"""Models on the command line: valid input in a separate process, invalid input in this one."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris

import meshnn as library
from commands import in_a_process, meshnn
from folders import refused
from meshnn import Topology
from meshnn.tables.synthetic import spirals


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Create a folder with spaces and umlauts: iris, spirals, a numeric table, and a table with mixed columns."""
    folder = tmp_path_factory.mktemp("with spaces and ü")
    iris = load_iris(as_frame=True)
    frame = iris.frame.drop(columns="target").assign(species=[iris.target_names[k] for k in iris.target])
    frame.to_csv(folder / "iris.csv", index=False)
    X, y = spirals(800, random_state=0)
    spiral = pd.DataFrame({"größe x": X[:, 0], "höhe": X[:, 1], "Klasse": np.where(y == 1, "rot", "blau")})
    spiral.to_csv(folder / "zwei spiralen.csv.gz", index=False)
    load_diabetes(as_frame=True).frame.to_parquet(folder / "diabetes.parquet")
    rng = np.random.default_rng(0)
    ages, members = rng.integers(20, 70, 120).astype(float), rng.integers(0, 2, 120).astype(bool)
    mixed = pd.DataFrame({"age": ages, "city": rng.choice(["Bonn", "Köln", "Rom"], 120), "same": 7, "member": members})
    mixed["pays"] = np.where((mixed.city == "Rom") ^ (mixed.age > 45), "yes", "no")
    mixed.loc[[3, 5], "age"] = np.nan
    mixed.loc[[7], "city"] = None
    mixed.to_csv(folder / "mixed.tsv", sep="\t", index=False)
    return folder


@pytest.fixture(scope="module")
def iris_model(tables):
    done = in_a_process("fit", str(tables / "iris.csv"), "--target", "species", "--out", str(tables / "iris.mesh"))
    assert done.returncode == 0, done.stderr
    return tables / "iris.mesh", done


def test_fit_reports_and_writes(iris_model):
    path, done = iris_model
    assert path.exists()
    for text in ("test accuracy", "95% interval", "versicolor", "edges ("):
        assert text in done.stdout
    reason = r"solver adam \(net 1: lm not tried: more weights \(\d+\) than samples \(105\); l2 .* \(held-out"
    assert re.search(reason, done.stdout)
    assert done.stdout.count("held-out loss") == 2  # one search per member
    assert "105 rows for training, 45 for the test" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr  # no colours without a terminal


def test_predict_to_screen_file_and_json(iris_model, tables):
    arguments, out = ("predict", iris_model[0], tables / "iris.csv"), tables / "predicted.parquet"
    done = meshnn(*arguments)
    assert done.returncode == 0, done.stderr
    heading, *lines = done.stdout.splitlines()
    assert (heading, len(lines)) == ("prediction", 150)
    assert meshnn(*arguments, "--probabilities", "--out", out).returncode == 0
    frame = pd.read_parquet(out)
    assert list(frame) == ["prediction", "P(setosa)", "P(versicolor)", "P(virginica)"]
    assert frame.prediction.tolist() == lines
    assert frame.iloc[:, 1:].sum(axis=1).sub(1).abs().max() < 1e-9
    assert json.loads(meshnn(*arguments, "--json").stdout)["prediction"] == lines


@pytest.mark.slow
def test_info_explain_and_plot(iris_model, tables):
    path, _ = iris_model
    shown = " ".join(meshnn("info", path).stdout.split())
    for text in ("classifier", "setosa; versicolor; virginica", "petal width (cm): number", "written with"):
        assert text in shown
    facts = json.loads(meshnn("info", path, "--json").stdout)
    assert facts["edges"] == library.load(path).mesh_.topology.n_edges
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    assert "Solver for 105 samples: adam" in meshnn("explain", path, "--samples", "105").stdout
    assert "leave these options out" in refused("explain", path, "--hidden", "3")
    for name in ("net.svg", "net.png", "net.pdf"):
        done = meshnn("plot", path, "--out", tables / name)
        assert done.returncode == 0, done.stderr
        assert (tables / name).stat().st_size > 5000
    assert "two features" in refused("plot", path, "--what", "regions", "--out", tables / "r.png")


def test_regression_from_parquet(tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit = ("fit", tables / "diabetes.parquet", "--target", "target", "--hidden", "4", "--max-epochs", "20", "--json")
    report, again = (json.loads(meshnn(*fit).stdout) for _ in range(2))
    assert report["task"] == "regress"
    assert 0 < report["test"]["low"] <= report["test"]["R2"] <= report["test"]["high"] < 0.9
    # the default name never overwrites a file
    assert (report["model"], again["model"]) == ("diabetes.mesh", "diabetes-1.mesh")
    assert Path("diabetes.mesh").is_file()


def test_mixed_columns_and_missing_values(tables):
    fit = ("fit", tables / "mixed.tsv", "--target", "pays", "--max-epochs", "9", "--json", "--out", tables / "m.mesh")
    report = json.loads(meshnn(*fit).stdout)
    assert report["features"] == ["age", "city=Bonn", "city=Köln", "city=Rom", "member"]
    for text in ("same is constant", "3 missing values in age, city"):
        assert any(text in note for note in report["notes"])
    said = meshnn("predict", tables / "m.mesh", tables / "mixed.tsv", "--json")
    mixed = pd.read_csv(tables / "mixed.tsv", sep="\t")
    assert json.loads(said.stdout)["prediction"] == library.load(tables / "m.mesh").predict(mixed).tolist()


@pytest.mark.slow
def test_topologies_from_files(tables):
    t = Topology.layered([4, 6, 3])
    (tables / "graph.json").write_text(json.dumps(t.to_dict()))
    nx.write_graphml(t.to_networkx(), tables / "graph.graphml")
    A = np.zeros((t.n_neurons, t.n_neurons))
    A[t.src, t.dst] = 1
    np.savez(tables / "graph.npz", A=A, bias=True)
    sparse.save_npz(tables / "sparse.npz", sparse.csr_array(np.triu(np.ones((9, 9)), 1)))
    fit = ("fit", tables / "iris.csv", "--target", "species", "--max-epochs", "5", "--json")
    for name, count in {"graph.json": 51, "graph.graphml": 51, "graph.npz": 51, "sparse.npz": 36}.items():
        done = meshnn(*fit, "--mesh", tables / name)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["edges"] == count
    (tables / "small.json").write_text(json.dumps(Topology.layered([2, 3]).to_dict()))
    for suffix in ("json", "graphml", "npz"):
        (tables / f"broken.{suffix}").write_text("<graphml>")
    for name in ("broken.json", "broken.graphml", "broken.npz", "iris.csv", "nothing.json"):
        assert name in refused(*fit, "--mesh", tables / name)
    assert "4 features" in refused(*fit, "--mesh", tables / "small.json")


def test_wrong_files(iris_model, tables, tmp_path):
    path, csv, cut, spoilt = iris_model[0], tables / "iris.csv", tmp_path / "cut.mesh", tmp_path / "spoilt.mesh"
    whole = path.read_bytes()
    cut.write_bytes(whole[:-100])
    spoilt.write_bytes(whole[:-50] + bytes([whole[-50] ^ 1]) + whole[-49:])
    for arguments, message in [
        (("predict", cut, csv), "damaged"), (("predict", spoilt, csv), "checksum"),
        (("predict", csv, csv), "is not a .mesh file"), (("info", tmp_path), "directory"),
        (("predict", path, tables / "mixed.tsv"), "sepal length (cm)"),
        (("plot", path, "--out", tmp_path / "net.bmp"), ".svg"),
        (("plot", path, "--out", tmp_path / "n.png", "--data", csv), "two features"),
        (("fit", csv, "--target", "specie"), "species"), (("fit", csv, "-y", "species", "--edges", "9999"), "9999"),
        (("fit", csv, "-y", "species", "--test", "0.999"), "lower it"),
    ]:  # fmt: skip
        assert message in refused(*arguments)


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background jobs ignore it
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
    """The process waits for the signal after its seventh epoch."""

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
    assert any("to resume" in note for note in json.loads(out)["notes"])
    assert len(library.load(tmp_path / "a.mesh").history_) == 7
    for model in ("a.mesh", "b.mesh"):
        done = meshnn(*arguments(model))
        assert done.returncode == 0, done.stderr
    resumed, whole = library.load(tmp_path / "a.mesh"), library.load(tmp_path / "b.mesh")
    assert (resumed.mesh_.weights == whole.mesh_.weights).all()
    longer = json.loads(meshnn(*arguments("a.mesh"), "--max-epochs", "62").stdout)
    assert longer["epochs"] == 62
    assert any("max_epochs was 60" in note for note in longer["notes"])


def test_the_number_of_members(tables, tmp_path):
    fit = ("fit", tables / "iris.csv", "--target", "species", "--max-epochs", "3", "--l2", "0.01", "--json")
    edges = []
    for count in ("1", "3"):
        done = meshnn(*fit, "--members", count, "--out", tmp_path / "m.mesh")
        assert done.returncode == 0, done.stderr
        edges.append(json.loads(done.stdout)["edges"])
        assert library.load(tmp_path / "m.mesh").n_members == int(count)
    assert edges[1] > 2 * edges[0]
    assert "--edges and --grow train one network" in refused(*fit, "--members", "2", "--edges", "50")


@pytest.mark.slow
def test_a_budget_of_edges_and_growth(tables, tmp_path, iris_model):
    arguments = ("fit", tables / "iris.csv", "--target", "species", "--json", "--seed", "1", "--max-epochs", "60")
    done = meshnn(*arguments, "--hidden", "8", "--edges", "50", "--out", tmp_path / "small.mesh")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["edges"] == 50
    assert report["test"]["accuracy"] > 0.5  # three classes of equal size
    for name in ("a.png", "a.gif"):
        drawn = meshnn("plot", tmp_path / "small.mesh", "--what", "topology", "--out", tmp_path / name)
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / name).stat().st_size > 5000
    done = meshnn(*arguments, "--hidden", "6", "--grow", "--out", tmp_path / "grown.mesh")
    assert 2 <= json.loads(done.stdout)["hidden"] <= 6
    plot = ("plot", iris_model[0], "--what", "topology", "--out", tmp_path / "b.png")
    assert "did not change in training" in refused(*plot)
