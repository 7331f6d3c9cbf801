#!/usr/bin/env bash
# Sets up what the tests need, builds, and runs everything: `bash tests/all.sh` from a fresh clone.
#
# It stops at the first failure and says which step that was. What a step needs and cannot have is a failure, too, unless
# a variable allows it:
#   ZRFS_ALLOW_NO_TORCHVISION=1   without Debian's python3-torchvision
#   ZRFS_ALLOW_NO_FRAMEWORKS=1    without Hugging Face datasets, JAX and WebDataset
#   ZRFS_ALLOW_NO_ROOT=1          without the tests that need root
#   SOAK_ROUNDS=N                 rounds of mounts of the soak test (20 here, 200 by itself)
#   TORTURE_SECONDS=N             how long readers check a mount that changes (15 for each kind of mount)
#   KILL_ROUNDS=N                 rounds of kills of the soak test (50 here, 500 by itself)
#   PEERS_AT_ONCE=N               files of peer tests that run side by side (2), but for those that need the machine alone
set -Eeuo pipefail
cd "$(dirname "$0")/.."
root=$PWD

PACKAGES=(fuse3 openclipart-png rsync python3 python3-torchvision python3-venv coreutils findutils procps util-linux mount
  diffutils tar gzip squashfs-tools gcc g++ binutils libc6-dev man-db systemd zsh fish)
NUMPY=2.4.6
LOADERX=0.5.0
DATASETS=5.2.0
JAX=0.10.2
WEBDATASET=1.0.2
VENV=$root/target/peers-venv
PEERS_AT_ONCE=${PEERS_AT_ONCE:-2}
export PYTHONDONTWRITEBYTECODE=1 CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
SECONDS=0
step="start"

heading() {
  step=$1
  printf '\n==== [%4d s] %s\n' "$SECONDS" "$step"
}

fail() {
  printf 'tests/all.sh: %s: %s\n' "$step" "$1" >&2
  exit 1
}

# Everything temporary goes into one folder, so that what is left there is a finding, and goes at the end.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/zrfs-all.XXXXXXXX")
scratch=$(realpath "$scratch")
chmod 755 "$scratch"
mkdir "$scratch/tmp"
# Unprivileged users take part in the tests, and need a way in.
chmod 1777 "$scratch/tmp"
export TMPDIR=$scratch/tmp

# Mount points below a folder, the innermost first. mountinfo escapes blanks and the like; %b undoes that.
mounts_in() {
  local point
  while read -r _ _ _ _ point _; do
    case $point in "$1"/*) printf '%s\n' "$point" ;; esac
  done </proc/self/mountinfo | tac
}

# Live processes of the program that is tested which mention something below a folder.
processes_in() {
  local pid exe
  for pid in /proc/[0-9]*; do
    exe=$(readlink "$pid/exe" 2>/dev/null) || continue
    case ${exe##*/} in
      zrfs | "zrfs (deleted)") ! tr '\0' '\n' <"$pid/cmdline" 2>/dev/null | grep -qaF -- "$1/" || echo "${pid#/proc/}" ;;
    esac
  done
}

clean_up() {
  local status=$? point pid
  trap - EXIT INT TERM HUP ERR
  set +e
  cd /
  stop_peers
  mounts_in "$scratch" | while read -r point; do
    point=$(printf '%b' "${point//\\/\\0}")
    umount "$point" 2>/dev/null || umount -l "$point" 2>/dev/null || fusermount3 -u -z "$point"
  done
  for pid in $(processes_in "$scratch"); do kill -9 "$pid" 2>/dev/null; done
  chmod -R u+w "$scratch" 2>/dev/null
  rm -rf "$scratch"
  if [ "$status" -eq 0 ]; then
    printf '\n==== [%4d s] everything passed\n' "$SECONDS"
  else
    printf '\n==== [%4d s] FAILED in step: %s (exit status %d)\n' "$SECONDS" "$step" "$status" >&2
  fi
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# The peer tests that run, by process id, and when each began.
declare -A running=() begun=()

# They unwind as at ^C, so that their mounts go. One that hangs is killed by its timeout, if it can be.
stop_peers() {
  local _
  [ ${#running[@]} -gt 0 ] || return 0
  kill -TERM "${!running[@]}" 2>/dev/null
  for _ in {1..350}; do
    kill -0 "${!running[@]}" 2>/dev/null || break
    sleep 0.1
  done
}

# After each step nothing of it may be left in its temporary folder.
nothing_left() {
  local found
  found=$(mounts_in "$1")
  [ -z "$found" ] || fail "it left mounts: $found"
  found=$(processes_in "$1")
  [ -z "$found" ] || fail "it left processes: $found"
  found=$(find "$1" -mindepth 1 -maxdepth 1)
  [ -z "$found" ] || fail "it left temporary files: $found"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -n "$@"
  else
    return 1
  fi
}

heading "set-up: packages"
missing=()
if command -v dpkg-query >/dev/null; then
  for package in "${PACKAGES[@]}"; do
    if [ "$package" = python3-torchvision ] && [ "${ZRFS_ALLOW_NO_TORCHVISION:-}" = 1 ]; then
      continue
    fi
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing+=("$package")
  done
else
  fail "this needs Debian or a relative of it (dpkg), with these packages: ${PACKAGES[*]}"
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  # A lock held by another apt is waited for.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq update ||
    fail "apt-get update failed; as root: apt-get install ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq install -y --no-install-recommends \
    "${missing[@]}" || fail "these packages are needed; as root: apt-get install ${missing[*]}"
else
  echo "all installed: ${PACKAGES[*]}"
fi
[ -c /dev/fuse ] || as_root modprobe fuse || fail "/dev/fuse is missing: load the kernel's fuse module"
[ -c /dev/fuse ] || fail "/dev/fuse is missing: in a container it needs --device /dev/fuse --cap-add SYS_ADMIN"
if [ "$(id -u)" -ne 0 ] && [ "${ZRFS_ALLOW_NO_ROOT:-}" != 1 ]; then
  fail "some tests need root (bind mounts, other users); ZRFS_ALLOW_NO_ROOT=1 leaves them out"
fi

heading "set-up: Rust"
command -v cargo >/dev/null || fail "cargo is missing: https://rustup.rs"
cargo --version
# Where packaging/build.sh leaves the programs, and the profile `checked` the library.
ZRFS=$root/target/$(rustc -vV | sed -n 's/^host: //p')/release/zrfs
export ZRFS ZRFS_LIBRARY=$root/target/checked/libzrfs.so
cargo fmt --version || fail "rustfmt is missing: rustup component add rustfmt"
cargo clippy --version || fail "clippy is missing: rustup component add clippy"

heading "set-up: Python with numpy $NUMPY and loaderx $LOADERX in target/peers-venv"
versions='import importlib.metadata as m; print(m.version("numpy"), m.version("loaderx"))'
if [ "$("$VENV/bin/python" -c "$versions" 2>/dev/null || true)" != "$NUMPY $LOADERX" ]; then
  rm -rf "$VENV"
  /usr/bin/python3 -m venv "$VENV"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "numpy==$NUMPY" "loaderx==$LOADERX"
fi
[ "$("$VENV/bin/python" -c "$versions")" = "$NUMPY $LOADERX" ] || fail "the wrong versions are in $VENV"
"$VENV/bin/python" -c 'import numpy, loaderx' || fail "numpy or loaderx cannot be imported"

if [ "${ZRFS_ALLOW_NO_FRAMEWORKS:-}" != 1 ]; then
  heading "set-up: Python with datasets $DATASETS, jax $JAX and webdataset $WEBDATASET in target/frameworks-venv"
  frameworks=$root/target/frameworks-venv
  versions='import importlib.metadata as m; print(*map(m.version, ["datasets", "jax", "webdataset"]), m.version("pillow") != "")'
  if [ "$("$frameworks/bin/python" -c "$versions" 2>/dev/null || true)" != "$DATASETS $JAX $WEBDATASET True" ]; then
    rm -rf "$frameworks"
    /usr/bin/python3 -m venv "$frameworks"
    "$frameworks/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "datasets==$DATASETS" \
      "jax==$JAX" "webdataset==$WEBDATASET" pillow ||
      fail "datasets, jax or webdataset cannot be installed; ZRFS_ALLOW_NO_FRAMEWORKS=1 goes without"
  fi
fi
nothing_left "$TMPDIR"

# Each step is one command; its name is what is printed when it fails.
run_step() {
  heading "$1"
  shift
  "$@"
  nothing_left "$TMPDIR"
}

run_step "cargo fmt" cargo fmt --all --check
# One profile for all of cargo's steps but the program's, so that what they depend on is built once.
checked=(--locked --profile checked)
run_step "clippy, all features" cargo clippy "${checked[@]}" --all-targets --all-features -- -D warnings
run_step "clippy, no features" cargo clippy "${checked[@]}" --all-targets --no-default-features -- -D warnings
run_step "clippy, fuse without libdeflate" cargo clippy "${checked[@]}" --all-targets --no-default-features --features fuse -- -D warnings
run_step "cargo doc" env RUSTDOCFLAGS="-D warnings" cargo doc "${checked[@]}" --no-deps
# The unit tests leave some of the states that a crash may leave on disk, for loaderx to open.
run_step "cargo test" env ZRFS_CRASH_STATES="$scratch/states" cargo test "${checked[@]}"
run_step "example quickstart" cargo run "${checked[@]}" --quiet --example quickstart
run_step "example endless_loader" cargo run "${checked[@]}" --quiet --example endless_loader
run_step "example resume" cargo run "${checked[@]}" --quiet --example resume -- "$scratch/resume"
run_step "libzrfs.so" cargo build "${checked[@]}" --lib
# The programs that everything below runs are those that are shipped.
run_step "packages" bash packaging/build.sh
run_step "loaderx's own tests on our library" bash tests/peers/engine_venv.sh "$NUMPY" "$LOADERX"
run_step "loaderx and the states after a crash" "$VENV/bin/python" tests/peers/crash_states.py "$scratch/states"
rm -rf "$scratch/states"
# Slow only where it hangs.
run_step "benchmark beside its peers, smoke" env LOADERX_PYTHON="$VENV/bin/python" timeout --foreground -k 30 900 \
  cargo bench "${checked[@]}" --bench peers -- --smoke --dir "$TMPDIR"
run_step "cargo test, pure-Rust codec, no FUSE" cargo test "${checked[@]}" --no-default-features --lib --tests

# These need the machine to themselves. All others have folders, mounts and processes of their own, so that two files run side
# by side: much of their time they wait, for a mount or for one thread of the program.
declare -A alone=(
  [test_cli]="takes any new zrfs process for one that the demo left"
  [test_daemon]="5,000 open files and 256 threads"
  [test_million]="prints how long things take, and drops the page cache"
  [test_packaging]="installs the package on this machine, and purges it"
  [test_torture]="eight readers and a writer, for a given time"
)

# A hang must not hold up the whole run. A test that waits in the kernel cannot be killed, but its mount can be aborted:
# that is what clean_up's unmounting amounts to. What a test prints is shown when it ends, in one piece.
start_peer() {
  mkdir -m 1777 "$scratch/$1"
  TMPDIR=$scratch/$1 timeout --foreground -k 30 900 "$VENV/bin/python" -m unittest discover -v -s tests/peers -p "$1.py" \
    >"$scratch/$1.log" 2>&1 &
  running[$!]=$1
  begun[$!]=$SECONDS
}

# Waits for one of those that run.
end_peer() {
  local pid status=0 subject
  step="peers: ${running[*]}"
  wait -n -p pid "${!running[@]}" || status=$?
  subject=${running[$pid]}
  unset "running[$pid]"
  heading "peers: $subject, $((SECONDS - begun[$pid])) s${alone[$subject]:+, alone: ${alone[$subject]}}"
  step="peers: $subject"
  cat "$scratch/$subject.log"
  [ "$status" -ne 124 ] || fail "not done after 900 s"
  [ "$status" -eq 0 ] || fail "exit status $status"
  nothing_left "$scratch/$subject"
  rm -r "$scratch/$subject" "$scratch/$subject.log"
}

for file in tests/peers/test_*.py; do
  subject=$(basename "$file" .py)
  [ -z "${alone[$subject]:-}" ] || continue
  [ ${#running[@]} -lt "$PEERS_AT_ONCE" ] || end_peer
  start_peer "$subject"
done
while [ ${#running[@]} -gt 0 ]; do end_peer; done
for file in tests/peers/test_*.py; do
  subject=$(basename "$file" .py)
  [ -n "${alone[$subject]:-}" ] || continue
  start_peer "$subject"
  end_peer
done

run_step "soak" env SOAK_ROUNDS="${SOAK_ROUNDS:-20}" KILL_ROUNDS="${KILL_ROUNDS:-50}" bash tests/soak.sh
