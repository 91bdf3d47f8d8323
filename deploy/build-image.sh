#!/bin/sh
# Build the image on a machine that cannot pull images: wheels are collected outside the build, and
# the base image is made here unless BASE names an existing one. Usage: deploy/build-image.sh [TAG]
set -eu
cd "$(dirname "$0")/.."
tag=${1:-kraftbox}
base=${BASE:-kraftbox-base:bookworm}
python=${PYTHON:-python3}

if ! docker image inspect "$base" >/dev/null 2>&1; then
    sh deploy/base-image.sh "$base"
fi
rm -rf deploy/wheels
mkdir deploy/wheels
trap 'rm -rf deploy/wheels' EXIT
"$python" -m pip wheel --quiet --disable-pip-version-check --wheel-dir deploy/wheels ".[tiered]" pip
DOCKER_BUILDKIT=0 docker build --quiet --build-arg BASE="$base" -f deploy/Dockerfile -t "$tag" . \
    >/dev/null
docker image inspect --format "$tag {{.Size}} bytes" "$tag"
