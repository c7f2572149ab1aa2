#!/usr/bin/env bash
# The documentation, where a dead link is an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
make docs
