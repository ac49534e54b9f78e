#!/bin/sh
# Adds Inkstand to your desktop's menu and `inkstand` to your terminal. The program stays in this folder.
#
#   ./install.sh             add it; again after the folder was moved
#   ./install.sh --remove    take it away; chats, settings and models stay
set -eu

id=io.github.inkstand.Inkstand
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
data=${XDG_DATA_HOME:-$HOME/.local/share}
entry=$data/applications/$id.desktop
icon=$data/icons/hicolor/256x256/apps/$id.png
command=$HOME/.local/bin/inkstand

# Desktops look themselves sooner or later where these programs are missing.
refresh() {
    update-desktop-database -q "$data/applications" 2>/dev/null || true
    gtk-update-icon-cache -q -t "$data/icons/hicolor" 2>/dev/null || true
}

# Whether the command in the terminal is one that this script has made, here or in a folder that is gone.
ours() {
    [ -L "$command" ] && case $(readlink -- "$command") in
    "$here/inkstand") true ;;
    *) ! [ -e "$command" ] ;;
    esac
}

case ${1:-} in
--remove)
    rm -f -- "$entry" "$icon"
    if ours; then rm -f -- "$command"; fi
    refresh
    echo "Removed from the menu. Delete the folder $here to be rid of the program itself."
    exit
    ;;
'') ;;
*)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

mkdir -p -- "${entry%/*}" "${icon%/*}" "${command%/*}"
# Inside the quotes of an entry's Exec these characters are escaped, twice over, and % is doubled.
program=$(printf '%s' "$here/inkstand" | sed -e 's/\\/\\\\\\\\/g' -e 's/["`$]/\\\\&/g' -e 's/%/%%/g')
while IFS= read -r line; do
    case $line in
    Exec=*) printf 'Exec="%s"\n' "$program" ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$here/$id.desktop" >"$entry"
cp -- "$here/$id.png" "$icon"
refresh
echo "Inkstand is in the menu of your desktop."
if ours || ! [ -e "$command" ]; then
    ln -sfn -- "$here/inkstand" "$command"
    case :$PATH: in
    *":${command%/*}:"*) echo "In a terminal: inkstand" ;;
    *) echo "In a terminal: $command" ;;
    esac
else
    echo "$command is another program and was left alone."
fi
