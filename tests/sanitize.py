"""Run tests of the engine on a debug build of the core that checks every memory access.

    python tests/sanitize.py [address,undefined | thread] [--quick] [PYTEST ARGUMENT ...]

AddressSanitizer and UndefinedBehaviorSanitizer detect accesses outside of arrays, overflows and misaligned pointers;
ThreadSanitizer detects data races in the thread pool. The compiler must be GCC or Clang with the sanitizer libraries.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Tests of the engine; ThreadSanitizer runs the second list, which uses threads.
TESTS = {
    "address,undefined": ["golden", "tiles", "time", "levenberg", "stream", "kalman", "portable", "core"],
    "thread": ["threads", "core"],
}
QUICK = {"address,undefined": ["golden", "core"], "thread": ["threads"]}
LIBRARY = {"address,undefined": "libasan.so", "thread": "libtsan.so"}
#: Tests that fail under a sanitizer: ThreadSanitizer adds a thread.
WITHOUT = {"address,undefined": "damaged", "thread": "are_started or damaged"}


def built(kind):
    """Build the core with a sanitizer; return a folder with a copy of the package that uses it."""
    folder = ROOT / "build" / f"sanitize-{kind.split(',')[0]}"
    package = folder / "package" / "meshnn"
    package.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", folder, f"-DMESHNN_SANITIZE={kind}", f"-DPython_EXECUTABLE={sys.executable}",
         f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={package}"], check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["cmake", "--build", folder, "-j", "2"], check=True, stdout=subprocess.DEVNULL)
    for path in (ROOT / "src" / "meshnn").iterdir():
        link = package / path.name
        if not path.name.startswith("_core.") and not link.exists():
            link.symlink_to(path)
    return package.parent


def main(arguments):
    kind = next((name for name in arguments if name in TESTS), "address,undefined")
    others = [argument for argument in arguments if argument not in (kind, "--quick")]
    package = built(kind)
    library = subprocess.run(["gcc", f"-print-file-name={LIBRARY[kind]}"], check=True, capture_output=True, text=True)
    environment = os.environ | {
        "LD_PRELOAD": library.stdout.strip(), "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": f"ignore_noninstrumented_modules=1:suppressions={ROOT / 'tests' / 'files' / 'tsan.txt'}",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    names = (QUICK if "--quick" in arguments else TESTS)[kind]
    files = [str(next((ROOT / "tests").rglob(f"test_{name}.py"))) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow",
               "-k", f"not ({WITHOUT[kind]})", *files, *others]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
