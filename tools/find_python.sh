#!/bin/sh
# Prints the Python to work with: the one that is named, or the newest supported one on the PATH. If there is none, says in
# one sentence what was looked for and how to name one.
#
#     sh tools/find_python.sh [NAME]
supported="3.14 3.13 3.12 3.11"
oldest=${supported##* }
newest=${supported%% *}

fail() {
    echo "meshnn: $*" >&2
    exit 1
}

# Its version as 3.12, or nothing: a name on the PATH need not run (pyenv has shims for versions that are not chosen).
version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# Whether it can make environments: Debian has that in a package of its own.
has_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

without_venv() {
    fail "$1 (Python $2) cannot make environments, since it has no venv module: install it (Debian and Ubuntu:" \
        "apt-get install python$2-venv) or name another Python, as in: make test PYTHON=/path/to/python$newest"
}

if [ -n "${1:-}" ]; then
    found=$(version "$1")
    [ -n "$found" ] || fail "PYTHON=$1 does not run: name a Python $oldest to $newest, or leave it out to have one found"
    minor=${found#*.}
    if [ "${found%%.*}" != 3 ] || [ "$minor" -lt "${oldest#*.}" ]; then
        fail "PYTHON=$1 is Python $found, and meshnn needs $oldest or later ($oldest to $newest are supported)"
    fi
    [ "$minor" -le "${newest#*.}" ] || echo "meshnn: Python $found is newer than what is supported ($newest): good luck" >&2
    has_venv "$1" || without_venv "$1" "$found"
    echo "$1"
    exit 0
fi

bare=
for wanted in $supported; do
    for name in "python$wanted" python3 python; do
        if [ "$(version "$name")" = "$wanted" ]; then
            if has_venv "$name"; then
                echo "$name"
                exit 0
            fi
            [ -n "$bare" ] || bare="$name $wanted"
        fi
    done
done
# shellcheck disable=SC2086  # two words
[ -z "$bare" ] || without_venv $bare
fail "no Python $oldest to $newest was found: there is no python$newest, 3.13, 3.12 or $oldest on the PATH, and python3 and" \
    "python are none of these; name one, as in: make test PYTHON=/path/to/python3.12"
