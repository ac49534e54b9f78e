#!/bin/sh
# Puts the MLX wheels of mlx.lock, made for the oldest macOS that the app is for, in place of those that pip chose.
#
#   packaging/macos/oldest_mlx.sh PYTHON
set -eu

python=$1
lock=$(dirname -- "$0")/mlx.lock
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
platform=$(sed -n 's/.*-\(macosx_[0-9]*_[0-9]*_arm64\)\.whl$/\1/p' "$lock" | head -n 1)
"$python" -m pip download -q --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --platform "$platform" --dest "$wheels" -r "$lock"
"$python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
