#!/bin/sh
# Installs the system's libraries that Qt loads on Debian and Ubuntu, for its offscreen platform and for X11 and Wayland.
set -eu

sudo apt-get update -qq
sudo apt-get install -qq -y --no-install-recommends \
    fonts-dejavu-core libdbus-1-3 libegl1 libfontconfig1 libgl1 libglib2.0-0 libwayland-client0 libwayland-cursor0 \
    libwayland-egl1 libx11-xcb1 libxcb-cursor0 libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-randr0 \
    libxcb-render-util0 libxcb-shape0 libxcb-xkb1 libxkbcommon-x11-0 libxkbcommon0
