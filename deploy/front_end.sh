#!/bin/sh
# Fetch the front-end files that package-lock.json pins into node_modules.
# usage: front_end.sh <python of the virtual environment>
# With the system's npm (7 or newer: older ones cannot read the lock file), else with the one from PyPI.
set -eu
python=$1

major=$(npm --version 2>/dev/null | cut -d. -f1) || major=
case $major in
'' | *[!0-9]*) major=0 ;;
esac
if [ "$major" -ge 7 ]; then
    npm=npm
else
    echo "No usable npm on this system: installing one into the virtual environment."
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements/assets.txt
    npm=$(dirname "$python")/npm
fi
"$npm" ci --ignore-scripts --no-audit --no-fund --no-update-notifier
