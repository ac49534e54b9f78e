#!/bin/sh
# Makes (or mends) the virtual environment of this checkout and installs locked packages and the project into it.
#
#   packaging/venv.sh DIRECTORY LOCK...
#
# PYTHON=/path/to/python chooses the interpreter. Every package comes from a hashed lock; the project itself is
# installed in place, without dependencies and without build isolation, so nothing unhashed is fetched.
set -eu

venv=$1
shift

fail() {
    printf 'error: %s\n' "$1" >&2
    printf '%s\n' "$2" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer." "Name another interpreter, or leave PYTHON unset."
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    found=$(python3 --version 2>&1) || found="no python3 at all"
    fail "Inkstand needs Python 3.11 or newer; this machine has $found." \
        "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13), or name one: make PYTHON=/path/to/python3.13"
}

# An environment whose interpreter was upgraded away, or whose making was interrupted, is made anew.
if ! { new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        fail "$("$python" --version) on this machine comes without the venv module." \
            "Install it (Debian, Ubuntu: apt install python3-venv) and run the command again."
    rm -rf "$venv"
    echo "Making $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi

for lock in "$@"; do
    # Both builds of mlx own the same library file, so the one that is there goes before the other comes.
    case $lock in *cuda*) other=mlx-cpu ;; *) other=mlx-cuda-13 ;; esac
    if "$venv/bin/python" -m pip show -qq "$other" 2>/dev/null; then
        "$venv/bin/python" -m pip uninstall -qq -y mlx-cpu mlx-cuda-13
    fi
    echo "Installing $lock (once, about a minute)"
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r "$lock"
done
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
