#!/usr/bin/env bash
# Sets up what the tests need beyond Rust; what is there already is kept. Says what it does.
set -euo pipefail
cd "$(dirname "$0")/.."

# A browser for the report's test. Without root or apt the test says that it was skipped.
if ! command -v chromium >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing chromium with apt-get"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 ||
      echo "setup: apt-get could not install chromium; the browser test will be skipped"
  else
    echo "setup: no chromium, and no root with apt-get to install it; the browser test will be skipped"
  fi
fi
# axe-core, which looks for what keeps people from using a page: one file from npm, pinned and checked. Without npm its test says that it
# was skipped.
axe=.tools/axe
if [ ! -e "$axe/axe.min.js" ]; then
  sum=39bed7d72308f6d620789c169d699bfd7e8da80f65b545821a6b2215c3e83107
  if command -v npm >/dev/null 2>&1; then
    echo "setup: fetching axe-core 4.11.0 with npm"
    mkdir -p "$axe" && (cd "$axe" && npm pack --silent axe-core@4.11.0 >/dev/null 2>&1 &&
      echo "$sum  axe-core-4.11.0.tgz" | sha256sum --check --status && tar -xzf axe-core-4.11.0.tgz --strip-components=1 package/axe.min.js &&
      rm axe-core-4.11.0.tgz) || { rm -rf "$axe"; echo "setup: npm could not fetch axe-core; the pages' accessibility will not be tested"; }
  else
    echo "setup: no npm; the pages' accessibility will not be tested"
  fi
fi
# NVRTC, to compile the CUDA kernels without a GPU or CUDA: two shared libraries from PyPI. 13.0 is pinned: newer ones emit what a CUDA 13.0
# driver rejects.
nvrtc=.tools/nvrtc
if [ ! -e "$nvrtc/nvidia/cu13/lib/libnvrtc.so.13" ]; then
  echo "setup: installing NVRTC 13.0 from PyPI"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$nvrtc" nvidia-cuda-nvrtc==13.0.88 ||
    echo "setup: pip could not install NVRTC; the kernels' compilation will fail"
fi
# Python for the notebooks, the bundle helper and its candidates. The pins are in requirements.txt; a change of it installs again.
if ! cmp -s scripts/requirements.txt .venv/requirements.txt; then
  echo "setup: making .venv from scripts/requirements.txt"
  python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements.txt &&
    cp scripts/requirements.txt .venv/requirements.txt || echo "setup: pip could not fill .venv; what needs Python will fail"
fi
echo "setup: done"
