#!/usr/bin/env bash
# The core install alone: without any extra all modules that need none import, and a line translates.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet .
cd "$scratch" # so that the installed package is imported, not the folder
export HF_HUB_OFFLINE=1 MT_CACHE="$scratch/cache" PYTHONPATH=
for module in mt mt.translate mt.evaluate mt.train mt.inspect mt.export mt.compile mt.utils.processes; do
    "$scratch/venv/bin/python" -c "import importlib; importlib.import_module('$module')"
done
"$scratch/venv/bin/python" -m mt.translate "Where do you live?"
echo "core: imports and translates without an extra"
