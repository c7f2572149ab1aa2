#!/usr/bin/env bash
# sdist -> wheel -> clean environment in an empty folder, where the three programs run offline.
# PYTHON is the interpreter (default python3); DIST keeps the sdist and the wheel.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dist=${DIST:-$scratch/dist}
"${PYTHON:-python3}" -m venv "$scratch/build"
"$scratch/build/bin/pip" install --quiet build
"$scratch/build/bin/python" -m build --outdir "$dist" . # the wheel is built from the sdist
"${PYTHON:-python3}" -m venv "$scratch/clean"
"$scratch/clean/bin/pip" install --quiet "$dist"/mt-*.whl

mkdir "$scratch/empty" && cd "$scratch/empty"
export HF_HUB_OFFLINE=1 HF_HOME="$scratch/hub" MT_CACHE="$scratch/cache" PYTHONPATH=
python=$scratch/clean/bin/python
"$python" -m mt.translate "Where do you live?" | tee translation
grep -qx "Wo wohnen Sie?" translation
"$python" -c 'from mt.compile import LIBRARIES
[path.read_bytes() for library in LIBRARIES for path in library.sources]'
"$python" -m mt.evaluate data=phrasebook limit=20
"$python" -m mt.train experiment=quickstart trainer.max_steps=5
echo "wheel: translated, evaluated and trained in an empty folder"
