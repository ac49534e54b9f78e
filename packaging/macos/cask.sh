#!/bin/sh
# Fills in the Homebrew cask for a released disk image, to standard output.
#
#   packaging/macos/cask.sh dist/Inkstand-VERSION-arm64.dmg OWNER/REPOSITORY > inkstand.rb
set -eu

image=$1
repository=$2
here=$(dirname -- "$0")
version=${image##*/Inkstand-}
version=${version%-arm64.dmg}
digest=$(openssl dgst -sha256 -r "$image" | cut -d ' ' -f 1)
# Homebrew knows the releases of macOS by name.
oldest=$(sed -n 's/.*-macosx_\([0-9]*\)_.*/\1/p' "$here/mlx.lock" | sort -n | tail -n 1)
case $oldest in
14) macos=sonoma ;;
15) macos=sequoia ;;
26) macos=tahoe ;;
*) printf 'error: macOS %s has no name in cask.sh\n' "$oldest" >&2 && exit 1 ;;
esac
sed -e "s|@VERSION@|$version|" -e "s|@SHA256@|$digest|" -e "s|@REPOSITORY@|$repository|g" -e "s|@MACOS@|$macos|" \
    "$here/inkstand.rb.in"
