#!/bin/sh
# In the build stage: install Kraftbox into the environment $1, from deploy/wheels if that folder has
# wheels, else over the network.
set -eu
target=$1
python3 -m venv --without-pip "$target"
if ls deploy/wheels/kraftbox-*.whl >/dev/null 2>&1; then
    pip=$(ls deploy/wheels/pip-*.whl)
    PYTHONPATH=$pip "$target/bin/python" -m pip install --quiet --no-cache-dir \
        --disable-pip-version-check --no-index --find-links deploy/wheels "kraftbox[tiered]"
else
    python3 -m pip --python "$target/bin/python" install --quiet --no-cache-dir \
        --disable-pip-version-check ".[tiered]"
fi
# Compile now, since the user of the final stage may not write there, and never check the sources.
"$target/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$target/lib" || true
