#!/usr/bin/env bash
# Builds the wheel into target/wheels, with the tag that its symbols allow. What is up to date is kept.
#
#     scripts/wheel.sh                   from the program that `cargo build --release` makes: runs where glibc is as new as here
#     scripts/wheel.sh manylinux2014     the same, linked by zig against glibc 2.17: runs on older systems too; for a release
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
if [ -n "${1:-}" ]; then
  "$tools/bin/python" -c 'import ziglang' 2>/dev/null || "$tools/bin/python" -m pip install --quiet --disable-pip-version-check ziglang==0.17.1
  # Zig's linker folds no functions and refuses to be asked.
  cat > "$tools/zigcc" <<END
#!/bin/sh
for arg; do
  shift
  [ "\$arg" = -Wl,--icf=all ] || set -- "\$@" "\$arg"
done
exec "$PWD/$tools/bin/python" -m ziglang cc -target x86_64-linux-gnu.2.17 "\$@"
END
  chmod +x "$tools/zigcc"
  "$tools/bin/maturin" build --quiet --compatibility "$1" --out target/wheels -- -C linker="$PWD/$tools/zigcc"
else
  "$tools/bin/maturin" build --quiet --out target/wheels
fi
ls -t target/wheels/qassay-*.whl | head -1
