"""How make finds a Python and what it says when there is none, none that will do, or no package index.

Pythons are shell scripts on a PATH of their own, so nothing is installed.
"""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKE = shutil.which("make")
_spec = importlib.util.spec_from_file_location("versions", ROOT / "tests" / "versions.py")
versions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(versions)

pytestmark = pytest.mark.skipif(MAKE is None, reason="there is no make here")


@pytest.fixture
def path(tmp_path):
    """A folder with what shell scripts need and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "env", "grep", "sed", "tail", "touch", "mkdir", "cp", "chmod", "cat"):
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


def add(folder, name, version, venv=True, pip="exit 0"):
    """A Python of that version; the environments it makes have a pip that does this."""
    script = f"""#!/bin/sh
case "$*" in
    *ensurepip*) exit {0 if venv else 1};;
    *version_info*) echo {version};;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python";;
    "-m pip "*) {pip};;
    *) echo "called with $*" >&2; exit 3;;
esac
"""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def call(path, *command):
    environment = {"PATH": str(path), "HOME": str(path)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)


def find(path, *name):
    return call(path, "sh", "tools/find_python.sh", *name)


def test_the_newest_supported_python_is_taken(path):
    add(path, "python3.11", "3.11")
    assert find(path).stdout == "python3.11\n"
    add(path, "python3", "3.12")
    assert find(path).stdout == "python3\n"
    add(path, "python3.13", "3.13")
    assert find(path).stdout == "python3.13\n"
    add(path, "python3.14", "3.14", venv=False)  # it cannot make environments, another can
    assert find(path).stdout == "python3.13\n"
    (path / "python3.14").write_text("#!/bin/sh\necho 'pyenv: python3.14: command not found' >&2\nexit 127\n")
    found = find(path)
    assert (found.stdout, found.stderr) == ("python3.13\n", "")


@pytest.mark.parametrize("others", [{}, {"python3": "3.10", "python": "2.7"}, {"python3": "3.15"}])
def test_no_python_is_one_sentence(path, others):
    for name, version in others.items():
        add(path, name, version)
    done = find(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"meshnn: no Python 3\.11 to 3\.14 was found: .* PYTHON=/path/to/python3\.12\n", done.stderr)


def test_a_python_without_venv_is_one_sentence(path):
    add(path, "python3", "3.12", venv=False)
    for found in (find(path), find(path, "python3")):
        assert found.returncode == 1
        assert re.fullmatch(
            r"meshnn: python3 \(Python 3\.12\) cannot make environments, .*python3\.12-venv.*\n", found.stderr
        )


def test_a_python_that_is_named(path):
    for name, version in (("python3.11", "3.11"), ("mine", "3.12"), ("old", "3.9"), ("new", "3.15"), ("two", "2.7")):
        add(path, name, version)
    assert find(path, "mine").stdout == "mine\n"
    assert re.match(r"meshnn: PYTHON=old is Python 3\.9, and meshnn needs 3\.11", find(path, "old").stderr)
    assert re.match(r"meshnn: PYTHON=two is Python 2\.7", find(path, "two").stderr)
    assert re.match(r"meshnn: PYTHON=nowhere does not run", find(path, "nowhere").stderr)
    new = find(path, "new")
    assert (new.returncode, new.stdout) == (0, "new\n")
    assert "newer than what is supported" in new.stderr


def test_make_says_it_and_stops(path, tmp_path):
    done = call(path, MAKE, "demo", f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("meshnn: no Python 3.11 to 3.14 was found")
    assert second.startswith("make: ***")


UNREACHABLE = """echo "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'"
    echo "ERROR: No matching distribution found for numpy>=2.0"; exit 1"""


@pytest.mark.parametrize(("pip", "sentence"), [
    (UNREACHABLE, "meshnn: the package index cannot be reached, so nothing was installed"),
    ("echo 'ERROR: No matching distribution found for scipy==1.17.1'; exit 1",
     "meshnn: the package index has no scipy==1.17.1 for Python 3.12: take another Python"),
    ("echo '(from versions: none)'; echo 'ERROR: No matching distribution found for hatchling'; exit 1",
     "meshnn: the package index cannot be reached, or has no hatchling for Python 3.12: look at the connection"),
    ("echo 'ERROR: it has a cold'; exit 1", "meshnn: pip could not install -e .[plots]: ERROR: it has a cold."),
    ("echo 'OSError: [Errno 28] No space left on device'; exit 1", "meshnn: the disk is full."),
])  # fmt: skip
def test_what_pip_cannot_do_is_one_sentence_and_a_log(path, tmp_path, pip, sentence):
    add(path, "python3.12", "3.12", pip=pip)
    venv = tmp_path / "venv"
    done = call(path, MAKE, f"{venv}/.installed", f"VENV={venv}")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(sentence)
    assert first.endswith(f" What pip said is in {venv}/pip.log.")
    assert second.startswith("make: ***")
    assert "python3.12 -m venv" in done.stdout
    assert (venv / ".python").exists()
    assert not (venv / ".installed").exists()
    assert ("ERROR" in (venv / "pip.log").read_text()) or "Errno" in (venv / "pip.log").read_text()


def test_what_is_installed_is_not_installed_again(path, tmp_path):
    add(path, "python3.12", "3.12", pip='echo "$*"')
    venv = tmp_path / "venv"
    done = call(path, MAKE, f"{venv}/.installed", f"VENV={venv}")
    assert (done.returncode, done.stderr) == (0, "")
    assert (venv / "pip.log").read_text().endswith("-c constraints.txt -e .[plots]\n")
    again = call(path, MAKE, f"{venv}/.installed", f"VENV={venv}")
    assert "up to date" in again.stdout
    other = call(path, MAKE, f"{tmp_path}/other/.python", f"VENV={tmp_path}/other", "PYTHON=python3.12")
    assert other.stdout == f"python3.12 -m venv {tmp_path}/other\n"


def test_the_script_supports_what_the_package_does(path):
    """Classifiers, script and page name the same versions."""
    script = re.search(r'^supported="(.*)"$', (ROOT / "tools" / "find_python.sh").read_text(), re.MULTILINE)
    assert script[1].split()[::-1] == versions.supported()
    page = (ROOT / "docs" / "versions.md").read_text()
    assert all(f"| Python {version} |" in page for version in versions.supported())
    lowest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text())[1]
    assert lowest == versions.supported()[0]


def test_pythons_of_pyenv_are_found(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    assert versions.find("3.12", tmp_path) is None
    kept = tmp_path / ".pyenv" / "versions" / "3.12.4" / "bin"
    kept.mkdir(parents=True)
    (kept / "python3.12").write_text("#!/bin/sh\necho 3.12\n")
    (kept / "python3.12").chmod(0o755)
    assert versions.find("3.12", tmp_path) == str(kept / "python3.12")
    (path / "python3.12").write_text("#!/bin/sh\nexit 127\n")  # a shim of a version that is not chosen
    (path / "python3.12").chmod(0o755)
    assert versions.find("3.12", tmp_path) == str(kept / "python3.12")
    assert versions.find("3.13", tmp_path) is None
