"""The quick tests on every supported Python that this machine has, each in an environment of its own (.venv-3.12).

python tests/versions.py                       # all that are here; those that are not are named
python tests/versions.py --only 3.13 -k time   # one of them, and some tests
python tests/versions.py --list                # only say which are here

Pythons are looked for on the PATH and where pyenv and uv keep theirs. A version whose environment cannot be made counts
as failed; one that is not here does not. PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu has a small torch.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"


def supported():
    """The versions that pyproject.toml names, oldest first."""
    found = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    return sorted(found, key=lambda version: int(version.split(".")[1]))


def candidates(version, home=None):
    """Where that version could be: on the PATH, then where pyenv and uv keep theirs."""
    home = Path.home() if home is None else home
    named = [shutil.which(name) for name in (f"python{version}", "python3", "python")]
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = home / ".local" / "share" / "uv" / "python"
    kept = [*pyenv.glob(f"{version}.*"), *uv.glob(f"cpython-{version}.*")]
    return [*filter(None, named), *(str(folder / "bin" / f"python{version}") for folder in sorted(kept, reverse=True))]


def find(version, home=None):
    """A Python of that version which runs and can make environments, or None."""
    for path in candidates(version, home):
        try:
            said = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=30, check=False)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return path
    return None


def run(version, python, extras, arguments):
    """Make or bring up to date its environment, then test; the exit code."""
    folder = ROOT / f".venv-{version}"
    if not (folder / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    install = ["sh", "tools/pip_install.sh", folder.name, "-e", f".[{extras}]"]
    if subprocess.run(install, cwd=ROOT, check=False).returncode:
        return 1
    tests = [folder / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = subprocess.run(tests, cwd=ROOT, env=os.environ | threads, check=False).returncode
    return 0 if code == 5 else code  # no test of that name is quick: nothing has failed


def main():
    """Find, test, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="these versions, comma-separated")
    parser.add_argument("--extras", default="dev,plots,torch", help="what is installed besides the package")
    parser.add_argument("--list", action="store_true", help="only say which are here")
    parser.add_argument("-k", default="", help="tests whose names match")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else supported()
    if unknown := set(wanted) - set(supported()):
        parser.error(f"{', '.join(sorted(unknown))} is not supported; choose from {', '.join(supported())}")
    arguments = ["-m", "not slow", "--hypothesis-profile=few", "-n", "2", "--dist", "worksteal"]
    arguments += ["-k", options.k] if options.k else []
    failed, said = False, []
    for version in wanted:
        python = find(version)
        if python is None:
            said.append(f"{version}: not on this machine, so not tested")
            continue
        if options.list:
            said.append(f"{version}: {python}")
            continue
        print(f"Python {version}: {python}", flush=True)
        start = time.monotonic()
        code = run(version, python, options.extras, arguments)
        failed |= code != 0
        said.append(f"{version}: {'FAILED' if code else 'passed'}, {time.monotonic() - start:.0f} s")
    print("\n".join(said))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
