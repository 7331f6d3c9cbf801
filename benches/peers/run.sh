#!/usr/bin/env bash
# Measures zrfs beside its peers: installs those that are missing, builds, measures. Words go to the benchmark; see
# benches/README.md.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
bash benches/peers/set_up.sh
exec cargo bench --locked --bench peers -- "$@"
