#!/bin/sh
# Installs an agent program written in Python into its prefix while its image is built, and writes down what it is.
#   install.sh PREFIX PRODUCT PACKAGE
# $VERSIONS: `latest` installs the newest release, `tested` that of the requirements with their checksums.
set -eu
prefix=$1 product=$2 package=$3
cd "$prefix"
python3 -m venv --help >/dev/null 2>&1 && python3 -c 'import ensurepip' 2>/dev/null || {
    echo "the toolbox has no Python that makes virtual environments; add python3-venv to its Containerfile" >&2
    exit 1
}
[ -z "${SSL_CERT_FILE:-}" ] || export PIP_CERT="$SSL_CERT_FILE"
case ${VERSIONS:-latest} in
tested) sh ./fill.sh python3 ;;
latest)
    python3 -m venv venv
    venv/bin/python -m pip install --only-binary :all: --no-cache-dir --disable-pip-version-check --no-input \
        --quiet "$package"
    ;;
*)
    echo "VERSIONS is latest or tested, not $VERSIONS" >&2
    exit 1
    ;;
esac
number=$(venv/bin/python -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$package")
# A layout that changed must be noticed here and not by an agent.
[ -n "$number" ]
mkdir -p /usr/share/handler
echo "$product $number" | tee /usr/share/handler/version
chmod -R a+rX "$prefix" /usr/share/handler
