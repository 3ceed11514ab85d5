#!/bin/sh
# Makes a base image from Debian's packages where no registry can be reached: sh base.sh [TAG]
# Needs root and debootstrap. MIRROR names another mirror of Debian.
set -eu

tag=${1:-netdfl-base:bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv bookworm "$work/root" "$mirror" >"$work/log" ||
    { tail -n 5 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2; exit 1; }

# A container installs no package, and reads no manual.
cd "$work/root"
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/doc usr/share/man usr/share/locale usr/share/info
tar -c . | docker import --change 'CMD ["python3"]' --message 'Debian and Python, for netdfl' - "$tag"
