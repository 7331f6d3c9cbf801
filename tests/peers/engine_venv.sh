#!/usr/bin/env bash
# loaderx's Python layer on our library, and loaderx's own tests on that: `bash tests/peers/engine_venv.sh [NUMPY LOADERX]`.
#
# Makes target/engine-venv with these versions from PyPI, puts target/release/libzrfs.so in the place of both of loaderx's
# libraries, fetches loaderx's source release, and runs the tests in it. All of them have to pass, on our library.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

NUMPY=${1:-2.4.6}
LOADERX=${2:-0.5.0}
VENV=$root/target/engine-venv
LIBRARY=${ZRFS_LIBRARY:-$root/target/release/libzrfs.so}
SOURCES=$root/target/engine-sources
# What loaderx 0.5.0 has.
TESTS=15
export PYTHONDONTWRITEBYTECODE=1

fail() {
  printf 'tests/peers/engine_venv.sh: %s\n' "$1" >&2
  exit 1
}

[ -f "$LIBRARY" ] || fail "$LIBRARY is missing: cargo build --release"

versions='import importlib.metadata as m; print(m.version("numpy"), m.version("loaderx"))'
if [ "$("$VENV/bin/python" -c "$versions" 2>/dev/null || true)" != "$NUMPY $LOADERX" ]; then
  rm -rf "$VENV"
  /usr/bin/python3 -m venv "$VENV"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "numpy==$NUMPY" "loaderx==$LOADERX"
fi
[ "$("$VENV/bin/python" -c "$versions")" = "$NUMPY $LOADERX" ] || fail "the wrong versions are in $VENV"

# A new file each time: one that a process has mapped must not be written over.
lib=$("$VENV/bin/python" -c 'import importlib.util as u, pathlib
print(pathlib.Path(u.find_spec("loaderx").origin).parent / "lib")')
for name in libzrecord.so libsampler.so; do
  [ -f "$lib/$name" ] || fail "loaderx $LOADERX has no $lib/$name"
  cp "$LIBRARY" "$lib/$name.new"
  mv "$lib/$name.new" "$lib/$name"
done
# loaderx's own libraries do not have this function.
"$VENV/bin/python" -c 'import loaderx._sampler as s, loaderx._zrecord as z
for module in (s, z):
    module.ffi.cdef("const char* zr_last_error(void);")
    module.lib.zr_last_error()' || fail "loaderx does not load our library"

if [ ! -f "$SOURCES/loaderx-$LOADERX.tar.gz" ]; then
  mkdir -p "$SOURCES"
  "$VENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-binary loaderx \
    --dest "$SOURCES" "loaderx==$LOADERX"
fi
rm -rf "$SOURCES/loaderx-$LOADERX"
tar -xzf "$SOURCES/loaderx-$LOADERX.tar.gz" -C "$SOURCES"

cd "$SOURCES/loaderx-$LOADERX"
status=0
said=$(timeout --kill-after=10 300 "$VENV/bin/python" tests/test_loaderx.py 2>&1) || status=$?
printf '%s\n' "$said"
[ "$status" -eq 0 ] || fail "loaderx's tests end with status $status"
grep -qxF "library  $lib/libzrecord.so" <<<"$said" || fail "loaderx's tests did not load $lib/libzrecord.so"
passed=$(grep -c '^  ok   test_' <<<"$said" || true)
[ "$passed" -eq "$TESTS" ] || fail "$passed of loaderx's $TESTS tests passed"
! grep -q FAIL <<<"$said" || fail "a test of loaderx's has failed"
printf '%s of %s tests of loaderx %s pass on %s\n' "$passed" "$TESTS" "$LOADERX" "$LIBRARY"
