"""`meshnn stream` equals row-by-row training in Python, for every file format and after every interruption."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meshnn as library
from commands import meshnn
from folders import refused
from meshnn import MeshStreamClassifier, MeshStreamRegressor
from meshnn.cli.stream_run import stop_requests
from meshnn.online.blocks import TableRunner
from meshnn.tables.reader import ReadOptions, open_table
from meshnn.tables.text import ByteSource
from stream_tables import NAMES, OPTIONS, QUIET, ROWS, by_hand, predictions, reference, run, write


@pytest.mark.parametrize("memory", ["none", "carry"])
@pytest.mark.parametrize(("target", "learner"), [("kind", "ekf"), ("kind", "adam"), ("amount", "ekf")])
def test_as_row_by_row(tmp_path, target, memory, learner):
    write(tmp_path / "t.csv")
    run(tmp_path, tmp_path / "t.csv", *OPTIONS[target], "--memory", memory, "--learner", learner)
    kind = MeshStreamClassifier if target == "kind" else MeshStreamRegressor
    model = kind(3, memory=memory, learner=learner, random_state=0)
    want = by_hand(model, target)
    rows = predictions(tmp_path / "p.csv")
    if target == "kind":
        got = [(row["prediction"] or None, float(row["probability"]) if row["probability"] else None) for row in rows]
    else:
        got = [float(row["prediction"]) if row["prediction"] else None for row in rows]
    assert got == want  # bit-identical
    saved = library.load(tmp_path / "m.mesh")
    assert saved.features_.names == model.features_.names
    np.testing.assert_array_equal(saved.stream_.values, model.stream_.values)
    assert saved.n_samples_ == model.n_samples_ == sum(bool(cells[5]) for cells in ROWS)


def same_report(one, other):
    leave = {"data", "seconds", "rows_per_second", "model", "predictions", "rows_of_this_run"}
    assert {k: v for k, v in one.items() if k not in leave} == {k: v for k, v in other.items() if k not in leave}


@pytest.mark.parametrize("target", ["kind", "amount"])
def test_where_blocks_end_does_not_matter(tmp_path, monkeypatch, target):
    want, report = reference(tmp_path / "whole", *OPTIONS[target])
    read = ByteSource.read
    monkeypatch.setattr(ByteSource, "read", lambda self, size: read(self, 97))
    got, other = reference(tmp_path / "cut", *OPTIONS[target])
    assert got == want
    same_report(report, other)


def test_forms_of_tables(tmp_path, monkeypatch):
    want, report = reference(tmp_path / "csv", *OPTIONS["kind"])
    others = tmp_path / "others"
    others.mkdir()
    write(others / "t.csv.gz")
    write(others / "t.tsv", separator="\t")
    write(others / "s.csv", separator=";")
    for name in ("t.csv.gz", "t.tsv", "s.csv"):
        (others / "m.mesh").unlink(missing_ok=True)
        run(others, others / name, *OPTIONS["kind"])
        assert (others / "p.csv").read_bytes() == want
    (others / "m.mesh").unlink()
    text = (tmp_path / "csv" / "t.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))))
    piped = run(others, "-", *OPTIONS["kind"], "--json")
    assert (others / "p.csv").read_bytes() == want
    assert json.loads(piped.stdout)["scores"] == report["scores"]


def test_parquet(tmp_path):
    reference(tmp_path / "csv", *OPTIONS["amount"])
    columns = {}
    for k, name in enumerate(NAMES):
        cells = [cells[k] if cells[k] not in ("", "NA") else None for cells in ROWS]
        columns[name] = [c if c is None or name in ("colour", "kind") else float(c) for c in cells]
    file, resume = tmp_path / "t.parquet", ("--resume", tmp_path / "m.mesh", *QUIET)
    pq.write_table(pa.table(columns), file, row_group_size=70)
    run(tmp_path, file, *OPTIONS["amount"])
    first, second = predictions(tmp_path / "csv" / "p.csv"), predictions(tmp_path / "p.csv")
    assert [row["prediction"] for row in first] == [row["prediction"] for row in second]
    (tmp_path / "m.mesh").unlink()
    pq.write_table(pa.table(columns).slice(0, 111), file, row_group_size=70)
    run(tmp_path, file, *OPTIONS["amount"])
    pq.write_table(pa.table(columns), tmp_path / "other.parquet", row_group_size=64)
    assert meshnn("stream", tmp_path / "other.parquet", *resume).returncode == 0  # in the middle of a group of rows
    assert predictions(tmp_path / "p.csv") == second
    assert "is shorter than the table" in refused("stream", file, *resume)


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["kind", "amount"])
def test_interrupted_and_resumed(tmp_path, monkeypatch, target):
    want, report = reference(tmp_path / "whole", *OPTIONS[target])
    table, model, out = tmp_path / "t.csv", tmp_path / "m.mesh", tmp_path / "p.csv"
    write(table)
    real = TableRunner.walk

    def walk(self, rows, first, last):  # a signal after 37 rows
        yield from real(self, rows, first, min(first + 37, last))
        os.kill(os.getpid(), signal.SIGINT)

    arguments = ("stream", table, *OPTIONS[target], "--out", model, "--predictions", out, *QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(TableRunner, "walk", walk)
        done = meshnn(*arguments)
        assert done.returncode == 130, done.stderr
        assert f"continue with: meshnn stream {table} --resume" in done.stderr
        assert "which would be overwritten" in refused(*arguments)
        for _ in range(3):
            assert meshnn("stream", table, "--resume", model, *QUIET).returncode == 130
    assert 0 < len(predictions(out)) < 300
    with out.open("a") as file:
        file.write("rows that a killed process wrote after its last checkpoint\n")
    done = meshnn("stream", table, "--resume", model, "--json", *QUIET)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == want
    same_report(report, json.loads(done.stdout))


def test_a_second_interruption_ends_at_once():
    before = signal.getsignal(signal.SIGINT)
    with stop_requests() as codes:
        os.kill(os.getpid(), signal.SIGTERM)
        assert codes == [143]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_table_that_has_grown(tmp_path):
    want, _ = reference(tmp_path / "whole", *OPTIONS["kind"])
    data, resume = tmp_path / "t.csv", ("--resume", tmp_path / "m.mesh", *QUIET)
    write(data, ROWS[:200])
    run(tmp_path, data, *OPTIONS["kind"])
    assert meshnn("stream", data, *resume).stdout.startswith("0 rows in ")
    write(data)
    assert meshnn("stream", data, *resume).returncode == 0
    assert (tmp_path / "p.csv").read_bytes() == want


def test_new_rows_of_a_file_and_of_standard_input(tmp_path, monkeypatch):
    want, _ = reference(tmp_path / "whole", *OPTIONS["kind"])
    head, *lines = (tmp_path / "whole" / "t.csv").read_bytes().splitlines(keepends=True)
    first, rest = head + b"".join(lines[:200]), b"".join(lines[200:])
    model, files = tmp_path / "m.mesh", ("-o", tmp_path / "m.mesh", "--predictions", tmp_path / "p.csv")

    def fed(data, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return meshnn("stream", "-", *arguments, *QUIET)

    done = fed(first, *OPTIONS["kind"], *files, "--json")
    assert (done.returncode, json.loads(done.stdout)["finished"]) == (0, True)
    assert json.loads(meshnn("info", model, "--json").stdout)["stream"] == "finished"
    before = {file: file.read_bytes() for file in (model, tmp_path / "p.csv")}
    again = fed(first + rest, *OPTIONS["kind"], *files)  # standard input cannot be read again
    assert again.returncode == 2
    assert f"of 200 rows, which would be overwritten; continue with --resume {model} --new-rows" in again.stderr
    assert model.read_bytes() == before[model]
    assert fed(first, "--resume", model).stdout.startswith("0 rows in ")
    (tmp_path / "new.csv").write_bytes(head + rest)
    for resume in (
        lambda *options: fed(rest, *options), lambda *options: meshnn("stream", tmp_path / "new.csv", *options, *QUIET),
    ):  # fmt: skip
        for file, content in before.items():
            file.write_bytes(content)
        assert resume("--resume", model, "--new-rows").returncode == 0
        assert (tmp_path / "p.csv").read_bytes() == want


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_far_into_a_file_it_is_not_read_again(tmp_path, monkeypatch, name):
    """`go_to` reads only a few bytes before the position; the rows after it are the same."""
    write(tmp_path / name, ROWS * 20)
    options = ReadOptions(block_size=2000)
    with open_table(tmp_path / name, options) as reader:
        blocks = [block for block in reader.blocks() if len(block)]
    assert sum(map(len, blocks)) == 6000
    block = blocks[-3]
    position, read, seen = block.position(2), ByteSource.read, []
    monkeypatch.setattr(ByteSource, "read", lambda self, size: seen.append(read(self, size)) or seen[-1])
    with open_table(tmp_path / name, options) as reader:
        reader.go_to(position)
        assert sum(map(len, seen)) < position.offset / 4
        left = pa.concat_tables([found.table for found in reader.blocks()])
    want = pa.concat_tables([block.table.slice(2), *(found.table for found in blocks[-2:])])
    assert left.to_pydict() == want.to_pydict()


def test_not_the_same_table(tmp_path):
    write(tmp_path / "t.csv")
    run(tmp_path, tmp_path / "t.csv", *OPTIONS["kind"])
    resume = ("--resume", tmp_path / "m.mesh", *QUIET)
    for rows, names, message in (
        (ROWS[:299], NAMES, "is shorter than the table"),
        ([["7", *ROWS[0][1:]], *ROWS[1:]], NAMES, "is not the table"),
        ([*ROWS[:-1], ["298", *ROWS[-1][1:]]], NAMES, "is not the table"),
        (ROWS, ["u", *NAMES[1:]], "there is no column t"),
    ):
        write(tmp_path / "other.csv", rows, names)
        assert message in refused("stream", tmp_path / "other.csv", *resume)
    for option, value, message in (
        ("-y", "amount", "started with kind"),
        ("-n", "7", "started with 3"),
        ("--drop", "a", "started with amount, t"),
        ("--window", "9", "--window"),
    ):
        assert message in refused("stream", tmp_path / "t.csv", option, value, *resume)


# -- separate processes ------------------------------------------------------------------------------------------------


def start(*arguments, **options):
    command = [sys.executable, "-m", "meshnn", "stream", *map(str, arguments), "--no-picture"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def wait_for(path, lines, process):
    """Wait until the file has this number of rows; raise an error if the process ends before."""
    for _ in range(6000):
        if path.exists() and path.read_bytes().count(b"\n") >= lines + 1:
            return
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not get {lines} lines")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended(tmp_path, number):
    want, _ = reference(tmp_path / "whole", *OPTIONS["kind"])
    write(tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_bytes()
    arguments = (*OPTIONS["kind"], "-o", tmp_path / "m.mesh", "--predictions", tmp_path / "p.csv", "--every", "25")
    process = start("-", *arguments)
    cut = len(b"\n".join(text.split(b"\n")[:171])) + 8  # 170 rows and a part of the next one
    process.stdin.write(text[:cut])
    process.stdin.flush()
    wait_for(tmp_path / "p.csv", 170, process)  # now it waits for more input
    process.send_signal(number)
    out, errors = process.communicate(timeout=120)
    rows = json.loads(meshnn("info", tmp_path / "m.mesh", "--json").stdout)["rows"]
    if number == signal.SIGKILL:
        assert process.returncode == -9
        assert 145 <= rows <= 170
    else:
        assert process.returncode == 128 + number
        assert rows == 170
        assert b"interrupted after row 170; continue with: meshnn stream - --resume" in errors
        assert b"accuracy" in out
    done = meshnn("stream", tmp_path / "t.csv", "--resume", tmp_path / "m.mesh", *QUIET)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.csv").read_bytes() == want


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path):
    """Twenty times as many rows take less than 30 MiB more memory."""
    program = """
import resource, sys
from meshnn.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert stop.code == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""
    line = ",".join(f"{k}.25" for k in range(40))
    peaks = []
    for count in (20_000, 400_000):
        with (tmp_path / "t.csv").open("w") as file:
            file.write(",".join(f"c{k}" for k in range(40)) + ",y\n")
            file.writelines(f"{line},{k % 2}\n" for k in range(count))
        arguments = ["stream", tmp_path / "t.csv", "-y", "y", "-n", "0", "--learner", "sgd", "-o", tmp_path / "m.mesh"]
        done = subprocess.run([sys.executable, "-c", program, *map(str, arguments), *QUIET], capture_output=True,
                              text=True, timeout=300, check=True)  # fmt: skip
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert (tmp_path / "t.csv").stat().st_size > 2**26
    assert peaks[1] - peaks[0] < 30
