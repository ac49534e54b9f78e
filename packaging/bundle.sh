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
    entry=$(echo packaging/linux/*.desktop)
    cp "$entry" packaging/linux/install.sh "$product/"
    cp build/icons/inkstand.png "$product/$(basename "$entry" .desktop).png"
    # Symbols of the C library have the version that they came with; the newest one that is asked for decides.
    glibc=$(find "$product" -type f \( -name '*.so*' -o -name inkstand \) -exec grep -aoh 'GLIBC_2\.[0-9]*' {} + |
        sort -uV | tail -n 1)
    sed "s/@GLIBC@/${glibc#GLIBC_}/" packaging/linux/README.txt >"$product/README.txt"
    packaging/self_test.sh "$product/inkstand"
    version=$("$product/inkstand" --version | cut -d ' ' -f 2)
    tarball=dist/inkstand-$version-linux-$(uname -m).tar.gz
    tar -C dist --owner=0 --group=0 --numeric-owner --sort=name -czf "$tarball" inkstand
    printf '%s  %s\n' "$(du -sh "$tarball" | cut -f 1)" "$tarball"
    ;;
esac
printf '%s  %s\n' "$(du -sh "$product" | cut -f 1)" "$product"
