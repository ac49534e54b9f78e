#!/bin/sh
# Runs a bundle's self-test as on a fresh machine: another folder, nobody's variables, no compiler and no Python to fall back on.
#
#   packaging/self_test.sh EXECUTABLE
set -eu

directory=$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd)
program=$directory/$(basename -- "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
env -i HOME="$scratch" TMPDIR="$scratch" PATH="$scratch" LC_ALL=C.UTF-8 "$program" --self-test
