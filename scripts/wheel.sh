#!/usr/bin/env bash
# Builds the wheel into target/wheels, with the tag that its symbols allow. What is up to date is kept.
#
#     scripts/wheel.sh                   from the program that `cargo build --release` makes: runs where glibc is as new as here
#     scripts/wheel.sh manylinux2014     linked by zig against that system's glibc: runs on older systems too; for a release
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.tools/wheel
if ! cmp -s scripts/wheel-requirements.txt "$tools/requirements.txt"; then
  echo "wheel: making $tools from scripts/wheel-requirements.txt"
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check -r scripts/wheel-requirements.txt
  cp scripts/wheel-requirements.txt "$tools/requirements.txt"
fi
if [ -n "${1:-}" ]; then
  # A folder of its own: `cargo build` neither waits nor compiles again.
  "$tools/bin/python" -c 'import ziglang' 2>/dev/null || "$tools/bin/python" -m pip install --quiet --disable-pip-version-check ziglang==0.17.1
  PATH="$PWD/$tools/bin:$PATH" CARGO_TARGET_DIR=target/manylinux "$tools/bin/maturin" build --quiet --zig --compatibility "$1" --target x86_64-unknown-linux-gnu --out target/wheels
else
  cargo build --release --bin qassay
  # maturin asks cargo for the same build and relinks.
  "$tools/bin/maturin" build --quiet --out target/wheels
fi
ls -t target/wheels/qassay-*.whl | head -1
