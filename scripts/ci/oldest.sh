#!/usr/bin/env bash
# The lower bound of every dependency in pyproject.toml, installed in one environment and tested.
# PYTHON is the interpreter. TORCH replaces the bound of torch where its old wheels cannot be had,
# as in TORCH=torch==2.13.0+cpu; uv's own settings say where that wheel is.
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/uv"
"$scratch/uv/bin/pip" install --quiet uv
python=$scratch/venv/bin/python
"$scratch/uv/bin/uv" venv --quiet --python "${PYTHON:-python3}" "$scratch/venv"
options=(--resolution lowest-direct)
if [[ -n ${TORCH:-} ]]; then
    echo "$TORCH" > "$scratch/override.txt"
    options+=(--override "$scratch/override.txt")
else
    options+=(--torch-backend cpu)
fi
"$scratch/uv/bin/uv" pip install --quiet --python "$python" "${options[@]}" --editable '.[dev,pictures]'
"$scratch/uv/bin/uv" pip freeze --python "$python"
MT_CACHE="$scratch/cache" "$python" -m pytest -p no:cacheprovider "${@:-tests}"
