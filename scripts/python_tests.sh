#!/usr/bin/env bash
# Builds the wheel (for an older system: `python_tests.sh manylinux2014`), installs it into clean environments of the oldest and the newest
# Python that are here, and runs python/tests in each from an empty folder, with the source tree hidden where the system has mount
# namespaces. A pass on the same files is not repeated.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
wheel=$(scripts/wheel.sh "$@" | tail -1)

pythons=()
for minor in 10 11 12 13 14 15; do
  for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
    if "$candidate" -c "import sys, venv; sys.exit(sys.version_info[:2] != (3, $minor))" >/dev/null 2>&1; then
      pythons+=("$candidate")
      break
    fi
  done
done
if [ "${#pythons[@]}" = 0 ]; then
  echo "python: no Python of at least 3.10 here; install one"
  exit 1
fi
chosen=("${pythons[0]}")
[ "${#pythons[@]}" -gt 1 ] && chosen+=("${pythons[-1]}")

# Mounts a folder over the tree, so that nothing of it can be read by accident.
hide=()
for way in "unshare --mount" "unshare --mount --map-root-user"; do
  if $way mount -t tmpfs none "$root" 2>/dev/null; then
    hide=($way)
    break
  fi
done
[ "${#hide[@]}" = 0 ] && echo "python: no mount namespace here: the source tree stays in sight"

for python in "${chosen[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  venv=.tools/python-$version
  key=$(cat scripts/python-requirements.txt "$wheel" python/tests/*.py action.yml examples/ci/*.yml examples/ci/run.sh | sha256sum | cut -c1-64)
  if [ "$(cat "$venv/passed" 2>/dev/null)" = "$key" ]; then
    echo "python $version: passed before on these files"
    continue
  fi
  if ! cmp -s scripts/python-requirements.txt "$venv/requirements.txt"; then
    echo "python $version: making $venv"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r scripts/python-requirements.txt
    cp scripts/python-requirements.txt "$venv/requirements.txt"
  fi
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
  place=$(mktemp -d)
  mkdir "$place/venv" "$place/tests"
  cp -r python/tests/*.py action.yml examples/ci "$wheel" "$place/tests/"
  test="cd '$place/tests' && exec env -u QASSAY_BIN -u QASSAY_DATA PATH=/usr/sbin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 \
    '$place/venv/bin/python' -X dev -W error -m pytest -q -p no:cacheprovider ."
  if [ "${#hide[@]}" = 0 ]; then
    rmdir "$place/venv" && ln -s "$root/$venv" "$place/venv"
    sh -c "$test"
  else
    "${hide[@]}" sh -c "mount --bind '$root/$venv' '$place/venv' && mount -t tmpfs none '$root' && $test"
  fi
  rm -rf "$place"
  echo "$key" > "$venv/passed"
done
