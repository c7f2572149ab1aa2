#!/usr/bin/env bash
# A fresh environment, style, types and the default tests. Arguments go to make.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export MT_CACHE="$scratch/cache"
make check VENV="$scratch/venv" "$@"
