#!/bin/sh
# Has Apple notarise a signed app or disk image, and staples the ticket to it, so that it opens without a network too.
#
#   NOTARY_KEY=AuthKey.p8 NOTARY_KEY_ID=... NOTARY_ISSUER=... packaging/macos/notarize.sh dist/Inkstand.app
#
# The key is one of App Store Connect's API, role Developer.
set -eu

product=$1
: "${NOTARY_KEY:?}" "${NOTARY_KEY_ID:?}" "${NOTARY_ISSUER:?}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case $product in
*.app)
    upload=$scratch/upload.zip
    ditto -c -k --keepParent "$product" "$upload"
    ;;
*) upload=$product ;;
esac

answer=$scratch/answer.json
xcrun notarytool submit "$upload" --key "$NOTARY_KEY" --key-id "$NOTARY_KEY_ID" --issuer "$NOTARY_ISSUER" \
    --wait --timeout 30m --output-format json >"$answer" || true
# notarytool ends with 0 for a rejected upload too; what was wrong is in the log.
if [ "$(plutil -extract status raw -o - "$answer" 2>/dev/null)" != Accepted ]; then
    cat "$answer" >&2
    id=$(plutil -extract id raw -o - "$answer") &&
        xcrun notarytool log "$id" --key "$NOTARY_KEY" --key-id "$NOTARY_KEY_ID" --issuer "$NOTARY_ISSUER" >&2
    exit 1
fi
xcrun stapler staple "$product"
xcrun stapler validate "$product"
