#!/bin/sh
# Fills the prefix around this file with the packages of requirements.txt: wheels only, so nothing of them runs,
# each with one of the checksums written there.
#   fill.sh PYTHON
set -eu
"$1" -m venv venv
venv/bin/python -m pip install --no-deps --only-binary :all: --require-hashes --no-cache-dir \
    --disable-pip-version-check --no-input --quiet -r requirements.txt
