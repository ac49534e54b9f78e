#!/bin/sh
# Packs Inkstand.app into a compressed disk image with a link to /Applications, and signs it when CODESIGN_IDENTITY is set.
#
#   packaging/macos/dmg.sh dist/Inkstand.app    writes dist/Inkstand-VERSION-arm64.dmg
set -eu

app=$1
version=$(plutil -extract CFBundleShortVersionString raw -o - "$app/Contents/Info.plist")
image=$(dirname -- "$app")/Inkstand-$version-arm64.dmg

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
ditto "$app" "$stage/Inkstand.app"
ln -s /Applications "$stage/Applications"
hdiutil create -quiet -ov -volname Inkstand -fs HFS+ -format ULFO -srcfolder "$stage" "$image"
if [ -n "${CODESIGN_IDENTITY:-}" ]; then
    codesign --force --timestamp --sign "$CODESIGN_IDENTITY" "$image"
fi
printf '%s  %s\n' "$(du -sh "$image" | cut -f 1)" "$image"
