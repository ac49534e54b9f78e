#!/bin/sh
# Builds the installable program into dist/ and tests it: Inkstand.app on macOS, a folder and a tarball on Linux.
#
#   packaging/bundle.sh PYTHON
#
# PYTHON is the interpreter of an environment made from requirements-bundle.lock.
set -eu

python=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here/.."

"$python" packaging/icon.py build/icons
"$python" -m PyInstaller --noconfirm --clean --log-level WARN \
    --distpath dist --workpath build/pyinstaller packaging/inkstand.spec

case $(uname -s) in
Darwin)
    product=dist/Inkstand.app
    packaging/self_test.sh "$product/Contents/MacOS/inkstand"
    ;;
*)
    product=dist/inkstand
    cp build/icons/inkstand.png packaging/linux/inkstand.desktop "$product/"
    packaging/self_test.sh "$product/inkstand"
    version=$("$product/inkstand" --version | cut -d ' ' -f 2)
    tarball=dist/inkstand-$version-linux-$(uname -m).tar.gz
    tar -C dist --owner=0 --group=0 --numeric-owner --sort=name -czf "$tarball" inkstand
    printf '%s  %s\n' "$(du -sh "$tarball" | cut -f 1)" "$tarball"
    ;;
esac
printf '%s  %s\n' "$(du -sh "$product" | cut -f 1)" "$product"
