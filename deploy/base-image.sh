#!/bin/sh
# Make a small Debian base image with Python, for machines that cannot pull images: needs root and
# debootstrap. Other machines pass `--build-arg BASE=python:3.11-slim-bookworm` to the build instead.
set -eu

tag=${1:-kraftbox-base:bookworm}
suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
# Optional folder that keeps downloaded packages between runs.
cache=${DEBOOTSTRAP_CACHE:-}

work=$(mktemp -d)
mounted=
cleanup() {
    [ -z "$mounted" ] || umount "$work" || umount -l "$work"
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT INT TERM

# Unpacking syncs after every package, which costs nothing in memory.
if mount -t tmpfs -o size=1g,mode=755 kraftbox-base "$work" 2>/dev/null; then
    mounted=yes
fi
root=$work/root
if ! debootstrap --variant=minbase --include=python3 ${cache:+--cache-dir="$cache"} \
    "$suite" "$root" "$mirror" >"$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    exit 1
fi

# Files that a container never reads.
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
    "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* \
    "$root"/usr/share/locale/* "$root"/usr/share/zoneinfo/right
find "$root/usr/lib" -name __pycache__ -type d -prune -exec rm -rf {} +
# The host's name servers are not the container's.
rm -f "$root/etc/resolv.conf" "$root/etc/hostname"

tar --one-file-system --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -C "$root" -c . |
    docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$tag" >/dev/null
docker image inspect --format "$tag {{.Size}} bytes" "$tag"
