#!/bin/sh
# Signs Inkstand.app for distribution: hardened runtime, secure timestamp, from the innermost file outwards.
#
#   CODESIGN_IDENTITY="Developer ID Application: NAME (TEAM)" packaging/macos/sign.sh dist/Inkstand.app
set -eu

app=$1
: "${CODESIGN_IDENTITY:?names the certificate, see: security find-identity -v -p codesigning}"
entitlements=$(dirname -- "$0")/Inkstand.entitlements

sign() {
    codesign --force --timestamp --options runtime --sign "$CODESIGN_IDENTITY" "$@"
}

# Libraries and extension modules have any name, so what they are is read from the files.
find "$app/Contents/Frameworks" "$app/Contents/Resources" -type f ! -path '*.framework/*' | while IFS= read -r file; do
    case $(file -b "$file") in *Mach-O*) sign "$file" ;; esac
done
find "$app/Contents/Frameworks" -type d -name '*.framework' | while IFS= read -r framework; do
    sign "$framework"
done
sign --entitlements "$entitlements" "$app"
codesign --verify --strict --deep --verbose=2 "$app"
