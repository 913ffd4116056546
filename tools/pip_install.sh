#!/bin/sh
# Installs into an environment what is asked for, at the versions of constraints.txt. What pip says goes to a log in the
# environment; if it fails, one sentence says why and where the log is.
#
#     sh tools/pip_install.sh VENV ARGUMENT...
venv=$1
shift
log=$venv/pip.log
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$@" >"$log" 2>&1
status=$?
[ $status -ne 0 ] || exit 0
[ $status -lt 128 ] || exit $status # interrupted: whoever did it knows

fail() {
    echo "meshnn: $* What pip said is in $log." >&2
    exit 1
}

# The most telling words first: after a lost connection pip also says that there is no such package.
if grep -qiE 'No space left on device' "$log"; then
    fail "the disk is full."
elif grep -qiE 'Retrying \(|Max retries|NewConnectionError|NameResolution|name resolution|ConnectTimeout|ReadTimeout|Network is unreachable|ProxyError|Could not fetch URL|Connection (refused|reset|to .* timed out)' "$log"; then
    fail "the package index cannot be reached, so nothing was installed: make needs it once (or another one: set" \
        "PIP_INDEX_URL, or PIP_FIND_LINKS and PIP_NO_INDEX=1 for a folder of wheels)."
elif grep -qE 'No matching distribution found for' "$log"; then
    missing=$(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' "$log" | tail -n 1)
    python=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    grep -qF "(from versions: none)" "$log" && fail "the package index cannot be reached, or has no $missing for Python" \
        "${python:-as it is here}: look at the connection (or set PIP_INDEX_URL), then take another Python, as in:" \
        "make clean test PYTHON=python3.11."
    fail "the package index has no $missing for Python ${python:-as it is here}: take another Python, as in:" \
        "make clean test PYTHON=python3.11."
fi
last=$(grep -v '^ *$' "$log" | tail -n 1)
fail "pip could not install $*: ${last:-it ended with $status}."
