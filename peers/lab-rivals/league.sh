#!/usr/bin/env bash
# Runs the league and puts its tables into docs/measurements/league.md, below the part that is
# written by hand, which ends before the line `Versions:`.
#
#   peers/lab-rivals/league.sh [OPTION…]      as of `lab-rivals league`; --ci --seeds 1
#
# A run of one seed per network takes four minutes of CPU. LAB_RIVALS
# names a program that is built already. CARGO (cargo) builds it otherwise.
set -euo pipefail

peers=$(cd "$(dirname "$0")/.." && pwd)
document=$peers/../docs/measurements/league.md
[ $# -gt 0 ] || set -- --ci --seeds 1
tables=$(mktemp)
trap 'rm -f "$tables" "$tables.new"' EXIT

if [ -n "${LAB_RIVALS:-}" ]; then
  rivals=("$LAB_RIVALS")
else
  rivals=("${CARGO:-cargo}" run --quiet --release --manifest-path "$peers/Cargo.toml" -p lab-rivals --)
fi
"${rivals[@]}" league "$@" --markdown >"$tables"
sed '/^Versions: /,$d' "$document" >"$tables.new"
cat "$tables" >>"$tables.new"
cat "$tables.new" >"$document"
echo "$document: written; the notes above the tables have to be updated by hand" >&2
