#!/bin/sh
# Copies zrfs to ~/.local, or to the folder that is named, and changes nothing else; --remove takes that away again. It needs
# no root. The programs also run where they were unpacked.
set -eu
usage="usage: install.sh [--remove] [FOLDER]"
remove=
case ${1:-} in
  --remove)
    remove=1
    shift
    ;;
  -h | --help)
    echo "$usage    (FOLDER: $HOME/.local)"
    exit 0
    ;;
  -*)
    echo "$usage" >&2
    exit 2
    ;;
esac
prefix=${1:-$HOME/.local}
here=$(cd "$(dirname "$0")" && pwd)
[ -n "$remove" ] || mkdir -p "$prefix/bin"
prefix=$(cd "$prefix" && pwd)

# A mount may be running the old programs, which then can't be written to.
(cd "$here" && find bin share -type f) | while IFS= read -r file; do rm -f "$prefix/$file"; done
if [ -n "$remove" ]; then
  (cd "$here" && find bin share -depth -type d) | while IFS= read -r folder; do
    rmdir "$prefix/$folder" 2>/dev/null || true
  done
  echo "zrfs is no more in $prefix"
  exit 0
fi
cp -R "$here/bin" "$here/share" "$prefix/"

echo "zrfs is in $prefix/bin"
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "for ~/.profile: PATH=\"$prefix/bin:\$PATH\"" ;;
esac
if [ "$(id -u)" -ne 0 ] && ! command -v fusermount3 >/dev/null; then
  echo "to mount it needs fusermount3, which root installs with the package fuse3"
fi
