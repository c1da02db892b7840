#!/usr/bin/env bash
# Packs the crate, holds it to 8 MB, and checks that the package compiles alone. A pass on the same package is not repeated.
set -euo pipefail
cd "$(dirname "$0")/.."
most=8000000
cargo package --allow-dirty --no-verify --quiet
crate=$(ls -t target/package/qassay-*.crate | head -1)
size=$(stat -c %s "$crate")
if [ "$size" -gt "$most" ]; then
  echo "package: $crate has $size bytes, at most $most are wanted; see \`include\` in Cargo.toml"
  exit 1
fi
# Of the files, not of the archive: that has times in it.
key=$(tar -xzOf "$crate" | sha256sum | cut -c1-64)
if [ "$(cat target/package/passed 2>/dev/null)" = "$key" ]; then
  echo "package: $size bytes; compiled before"
  exit 0
fi
# As `cargo package` would verify it, but without machine code, which is that of the program, and with the dependencies that are checked already.
# Another level of optimization, so that its build script is not taken for the program's, which would be compiled again.
place=$PWD/target/package/unpacked
rm -rf "$place" && mkdir -p "$place"
# Files of an archive have no time of today: cargo would take what it built of an older package for this one.
tar -xzmf "$crate" -C "$place" --strip-components=1
(cd "$place" && CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-../..} cargo check --quiet --locked --release \
  --config profile.release.package.qassay.opt-level=0)
echo "$key" > target/package/passed
echo "package: $size bytes; compiles"
