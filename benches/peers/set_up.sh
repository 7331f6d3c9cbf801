#!/usr/bin/env bash
# Installs what the benchmark compares zrfs with: Debian's packages, a Python with loaderx and the other record stores in
# target/peers-venv, and pictures in target/peers-pictures. What is there is left as it is. What can't be had is left out of
# the benchmark, with one line here that says so; only loaderx has to be.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."

VENV=$PWD/target/peers-venv
PICTURES=$PWD/target/peers-pictures
COUNT=3000
PACKAGES=(fuse3 python3-venv squashfs-tools squashfuse erofs-utils fuse-zip zip tar openclipart-png)
# The versions that the tests use stand in tests/all.sh.
eval "$(grep -E '^(NUMPY|LOADERX)=[0-9.]+$' tests/all.sh)"
# Record stores, an archive mount, and what makes the pictures and the chart.
PEERS=(lmdb==3.0.0 bagz==0.3.8 array_record==0.8.6 ratarmount==1.3.0 pillow==13.0.0 matplotlib==3.11.2)
# Only its photographs are wanted, not what it depends on.
PHOTOGRAPHS=scikit-image==0.26.0

left_out() {
  printf 'set_up.sh: %s\n' "$1" >&2
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

missing=()
for package in "${PACKAGES[@]}"; do
  state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq update &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq install -y --no-install-recommends \
      "${missing[@]}"; } || left_out "not installed; as root: apt-get install ${missing[*]}"
fi

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@"
}

# Whether requirements like a==1.0 are met.
installed() {
  "$VENV/bin/python" - "$@" <<'END' 2>/dev/null
import importlib.metadata, sys
sys.exit(any(importlib.metadata.version(name) != version for name, version in (word.split("==") for word in sys.argv[1:])))
END
}

if ! installed "numpy==$NUMPY" "loaderx==$LOADERX"; then
  rm -rf "$VENV"
  /usr/bin/python3 -m venv "$VENV"
  pip_install "numpy==$NUMPY" "loaderx==$LOADERX"
fi
for peer in "${PEERS[@]}"; do
  installed "$peer" || pip_install "numpy==$NUMPY" "$peer" || left_out "not installed: $VENV/bin/python -m pip install $peer"
done
installed "$PHOTOGRAPHS" || pip_install --no-deps "$PHOTOGRAPHS" ||
  left_out "no photographs: $VENV/bin/python -m pip install --no-deps $PHOTOGRAPHS"
"$VENV/bin/python" -B benches/peers/pictures.py "$PICTURES" "$COUNT" || left_out "no pictures in $PICTURES: see above"
