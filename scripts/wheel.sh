#!/usr/bin/env bash
# Builds the wheel from the program that `cargo build --release` makes, into target/wheels. What is up to date is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.tools/wheel
if ! cmp -s scripts/wheel-requirements.txt "$tools/requirements.txt"; then
  echo "wheel: making $tools from scripts/wheel-requirements.txt"
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check -r scripts/wheel-requirements.txt
  cp scripts/wheel-requirements.txt "$tools/requirements.txt"
fi
cargo build --release --bin qassay
# maturin asks cargo for the same build and relinks.
"$tools/bin/maturin" build --quiet --skip-auditwheel --out target/wheels
ls -t target/wheels/qassay-*.whl | head -1
