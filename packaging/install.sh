#!/bin/sh
# Copies zrfs to ~/.local, or to the folder that is named (`./install.sh /usr/local`), and changes nothing else. It needs
# no root. The programs also run where they were unpacked.
set -eu
prefix=${1:-$HOME/.local}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$prefix/bin"
# A mount may be running the old ones, which then can't be written to.
rm -f "$prefix/bin/zrfs" "$prefix/bin/mount.zrfs"
cp -R "$here/bin" "$here/share" "$prefix/"

echo "zrfs is in $prefix/bin"
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "for ~/.profile: PATH=$prefix/bin:\$PATH" ;;
esac
if [ "$(id -u)" -ne 0 ] && ! command -v fusermount3 >/dev/null; then
  echo "to mount it needs fusermount3, which root installs with the package fuse3"
fi
