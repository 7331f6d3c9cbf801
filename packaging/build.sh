#!/usr/bin/env bash
# Makes the packages, in target/packages: zrfs-VERSION-MACHINE-linux.tar.gz and zrfs_VERSION_ARCHITECTURE.deb.
#
#   packaging/build.sh                      builds static programs, and packs them
#   packaging/build.sh --programs FOLDER    packs those that are there: zrfs, mount-zrfs and examples/pages
#
# Both packages are made of one tree, so that they hold the same; the same commit, compiler and C library make the same
# bytes. It needs cargo, a C compiler with its static C library (libc6-dev), strip, and dpkg-deb.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
packages=$PWD/target/packages
umask 022

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

case ${1:-} in
  "")
    triple=$(rustc -vV | sed -n 's/^host: //p')
    # With --target the flags go to the programs alone: build scripts and macros stay dynamic. The helper of the .deb has the
    # program elsewhere than beside itself.
    CARGO_PROFILE_RELEASE_DEBUG=none RUSTFLAGS="-C target-feature=+crt-static" ZRFS_PROGRAM=/usr/bin/zrfs \
      cargo build --release --locked --target "$triple" --bins --example pages
    programs=target/$triple/release
    ;;
  --programs) programs=${2:?usage: packaging/build.sh [--programs FOLDER]} ;;
  *)
    echo "usage: packaging/build.sh [--programs FOLDER]" >&2
    exit 2
    ;;
esac

rm -rf "$packages"
mkdir -p "$packages"
work=$(mktemp -d "$packages/tree.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# The tree, as a prefix has it.
name=zrfs-$version-$machine-linux
tree=$work/$name
install -D -s -m 755 "$programs/zrfs" "$tree/bin/zrfs"
install -D -s -m 755 "$programs/mount-zrfs" "$tree/bin/mount.zrfs"
"$programs/examples/pages" "$tree" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)"
doc=$tree/share/doc/zrfs
mkdir -p "$doc/docs" "$doc/examples"
cp README.md CHANGELOG.md LICENSE "$doc"
cp docs/*.md docs/*.svg "$doc/docs"
cp -R examples/*.py examples/*.sh packaging/systemd/* "$doc/examples"
# `cp` keeps no modes of its own: what git has is 644 or 755.
find "$tree" -type f ! -perm -100 -exec chmod 644 {} +
install -m 755 packaging/install.sh "$tree"

tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  --format=ustar "$name" | gzip -9n >"$packages/$name.tar.gz"

# The same files where Debian has them.
root=$work/deb
mkdir -p "$root/DEBIAN" "$root/usr/sbin"
cp -R "$tree/bin" "$tree/share" "$root/usr"
# mount(8) looks into /sbin, which is /usr/sbin, for the types zrfs and fuse.zrfs.
mv "$root/usr/bin/mount.zrfs" "$root/usr/sbin"
ln -s mount.zrfs "$root/usr/sbin/mount.fuse.zrfs"
ln -s mount.zrfs.8.gz "$root/usr/share/man/man8/mount.fuse.zrfs.8.gz"
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
doc=$root/usr/share/doc/zrfs
{
  echo "The programs are statically linked. They hold the GNU C library (LGPL-2.1-or-later, see"
  echo "/usr/share/common-licenses/LGPL-2.1) and the Rust packages that Cargo.lock of zrfs names, under their own licenses."
  echo "zrfs itself:"
  echo
  cat "$doc/LICENSE"
} >"$doc/copyright"
rm "$doc/LICENSE"
mv "$doc/CHANGELOG.md" "$doc/changelog"
find "$doc/changelog" "$root/usr/share/man" -type f -exec gzip -9n {} +
cat >"$root/DEBIAN/control" <<CONTROL
Package: zrfs
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The zrfs developers
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f 1)
Recommends: fuse3
Section: utils
Priority: optional
Description: compressed record stores of small training samples, mounted as files
 zrfs packs a folder of small training samples, or a NumPy array, into one
 compressed record store, and mounts that store as files. This package has the
 program, the helper that lets mount(8) and /etc/fstab mount a store, manual
 pages and shell completions. Its programs are static. To mount as a user other
 than root it needs fuse3.
CONTROL
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$root/DEBIAN"/*
dpkg-deb --root-owner-group --build "$root" "$packages" >/dev/null

(cd "$packages" && sha256sum "$name.tar.gz" ./*.deb)
