#!/bin/sh
# Installs an agent program into its prefix while its image is built, and writes down what it is.
#   install.sh PREFIX PRODUCT VERSION PACKAGE [ADAPTER …]
# VERSION is `package` (PACKAGE's own) or a command of the prefix whose output has it.
# $VERSIONS: `latest` installs the newest releases, `tested` those of the lock file.
set -eu
prefix=$1 product=$2 version=$3 package=$4
shift 4
cd "$prefix"
[ ! -s /run/handler-build/npmrc ] || export npm_config_userconfig=/run/handler-build/npmrc
flags="--ignore-scripts --include=optional --omit=dev --engine-strict=false --no-audit --no-fund --no-update-notifier --cache /tmp/npm"
case ${VERSIONS:-latest} in
tested) npm ci $flags ;;
latest)
    rm -f package-lock.json
    # The toolbox has a Node.js; the one pinned beside it is for prefixes on hosts without.
    npm pkg delete optionalDependencies
    wanted=$(node -p 'Object.keys(require("./package.json").dependencies).map(name => name + "@latest").join(" ")')
    npm install $flags --save-exact --no-package-lock $wanted
    ;;
*)
    echo "VERSIONS is latest or tested, not $VERSIONS" >&2
    exit 1
    ;;
esac
# Both say where the packages came from, which is no one's business in an image.
rm -rf /tmp/npm /tmp/node-compile-cache package-lock.json node_modules/.package-lock.json

# Where agents are started with, whichever Node.js it is.
[ -x node_modules/.bin/node ] || ln -sf "$(command -v node)" node_modules/.bin/node

version_of() {
    node -p 'require(process.argv[1]).version' "$prefix/node_modules/$1/package.json"
}

if [ "$version" = package ]; then
    number=$(version_of "$package")
else
    number=$(PATH="$prefix/node_modules/.bin:$PATH" sh -c "$version" </dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
fi
adapters=
for adapter in "$@"; do
    adapters="$adapters${adapters:+, }${adapter##*/} $(version_of "$adapter")"
done
# A layout that changed must be noticed here and not by an agent.
[ -n "$number" ]
mkdir -p /usr/share/handler
echo "$product $number${adapters:+ ($adapters)}" | tee /usr/share/handler/version
chmod -R a+rX "$prefix" /usr/share/handler
