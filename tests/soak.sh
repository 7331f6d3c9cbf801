#!/usr/bin/env bash
# Rounds of mount, read, unmount. No round may leave a process, a mount or a temporary file, or read a wrong byte. Then
# rounds of changes that are killed at random moments (tests/kill_rounds.py).
#
#   SOAK_ROUNDS=N   rounds of mounts (default 200)
#   KILL_ROUNDS=N   rounds of kills (default 500)
#   ZRFS=PATH       the program (default target/release/zrfs)
set -Eeuo pipefail
cd "$(dirname "$0")/.."
rounds=${SOAK_ROUNDS:-200}
zrfs=$(realpath "${ZRFS:-target/release/zrfs}")
[ -x "$zrfs" ] || { echo "tests/soak.sh: $zrfs is missing: cargo build --release" >&2; exit 1; }

work=$(realpath "$(mktemp -d "${TMPDIR:-/tmp}/soak.XXXXXXXX")")
round=0
failed() {
  echo "tests/soak.sh: round $round: $1" >&2
  exit 1
}

# Process ids of the program that is tested, for the mount point of this run.
daemons() {
  local pid exe
  for pid in /proc/[0-9]*; do
    exe=$(readlink "$pid/exe" 2>/dev/null) || continue
    [ "${exe% (deleted)}" = "$zrfs" ] || continue
    ! tr '\0' '\n' <"$pid/cmdline" 2>/dev/null | grep -qxF -- "$work/mnt" || echo "${pid#/proc/}"
  done
}
mounted() { grep -qF -- " $work/mnt " /proc/self/mountinfo; }

clean_up() {
  local status=$? pid
  trap - EXIT INT TERM HUP
  set +e
  cd /
  while mounted; do umount -l "$work/mnt" 2>/dev/null || fusermount3 -u -z "$work/mnt" || break; done
  for pid in $(daemons); do kill -9 "$pid"; done
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'failed "a command failed, line $LINENO: $BASH_COMMAND"' ERR
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Polls, at most 20 s.
wait_until() {
  local what=$1 end=$((SECONDS + 20))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || failed "after 20 s still not so: $what"
    sleep 0.01
  done
}
not_mounted() { ! mounted; }
no_daemon() { [ -z "$(daemons)" ]; }

# A source of 400 files: empty, small, larger than a page, of several MiB; some compress, some do not.
mkdir "$work/source" "$work/mnt" "$work/tmp"
for i in $(seq 0 399); do
  name=$(printf '%08d.bin' "$i")
  case $((i % 10)) in
    0) : ;;
    1) printf 'sample %d' "$i" ;;
    2 | 3 | 4) head -c $((i * 37)) /dev/urandom ;;
    5) seq "$i" $((i + 20000)) ;;
    *) seq "$i" $((i + 300)) ;;
  esac >"$work/source/$name"
done
head -c 4194304 /dev/urandom >"$work/source/00000400.bin"
seq 1 600000 >"$work/source/00000401.bin"
(cd "$work/source" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"

TMPDIR=$work/tmp "$zrfs" import "$work/source" "$work/store.zr" >/dev/null

# Only what belongs to this run: others may mount and make files meanwhile. TMPDIR is where the daemon's would be.
listing() { ls -A "$work" "$work/tmp" "$work/store.zr"; }
files_before=$(listing)
ways=("zrfs umount" "umount" "fusermount3 -u" "SIGTERM" "SIGINT")
readers=(1 2 8)

for ((round = 1; round <= rounds; round++)); do
  way=${ways[round % ${#ways[@]}]}
  # umount(8) is root's.
  if [ "$way" = umount ] && [ "$(id -u)" -ne 0 ]; then way="zrfs umount"; fi
  parallel=${readers[round % ${#readers[@]}]}

  TMPDIR=$work/tmp "$zrfs" mount "$work/store.zr" "$work/mnt" >/dev/null
  mounted || failed "zrfs mount returned, and nothing is mounted"
  pid=$(daemons)
  [[ $pid =~ ^[0-9]+$ ]] || failed "one daemon expected, found: ${pid:-none}"

  (cd "$work/mnt/records" && find . -type f -print0 | xargs -0 -P "$parallel" -n 32 sha256sum) | sort -k2 >"$work/seen"
  cmp -s "$work/seen" "$work/sums" || failed "with $parallel readers the hashes differ: $(diff "$work/seen" "$work/sums" | head -n 3)"
  rm "$work/seen"

  case $way in
    "zrfs umount") "$zrfs" umount "$work/mnt" >/dev/null ;;
    SIGTERM) kill -TERM "$pid" ;;
    SIGINT) kill -INT "$pid" ;;
    *) $way "$work/mnt" ;;
  esac
  wait_until "the mount is gone ($way)" not_mounted
  wait_until "the daemon ended ($way)" no_daemon

  ! grep -qF -- " $work/" /proc/self/mountinfo || failed "a mount was left ($way)"
  files=$(listing)
  [ "$files" = "$files_before" ] || failed "files were left ($way): $(diff <(echo "$files_before") <(echo "$files"))"
  if ((round % 20 == 0)); then printf '    %d rounds, %d s\n' "$round" "$SECONDS"; fi
done
echo "soak: $rounds rounds of mount, read, unmount left nothing behind"
ROUNDS=${KILL_ROUNDS:-500} ZRFS=$zrfs TMPDIR=$work/tmp python3 tests/kill_rounds.py
