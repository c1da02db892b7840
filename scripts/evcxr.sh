#!/usr/bin/env bash
# The Rust kernel of Jupyter, once: five minutes of compiling on 2 cores. It starts rustc, so it needs no speed of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .tools/evcxr/bin/evcxr_jupyter ] && exit 0
echo "setup: compiling evcxr_jupyter 0.22.0"
CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_LTO=off \
  cargo install --quiet --locked --version 0.22.0 --root .tools/evcxr --target-dir .tools/evcxr-build evcxr_jupyter &&
  rm -rf .tools/evcxr-build || echo "setup: cargo could not compile evcxr_jupyter; the notebooks will fail"
