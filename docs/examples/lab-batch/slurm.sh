#!/usr/bin/env bash
# Runs a batch of the lab as an array job, and joins its parts when all are done:
#   SHARDS=16 ./slurm.sh run --full --controller bbr
set -euo pipefail
shards="${SHARDS:-8}"
clearway="${CLEARWAY:-clearway}"
results="${RESULTS:-$PWD/results-$(date +%s)}"
if [ $# -eq 0 ]; then
  echo "usage: SHARDS=16 $0 run|sweep|hunt OPTIONS" >&2
  exit 2
fi
mkdir -p "$results"
printf -v words '%q ' "$clearway" lab "$@"
printf -v folder '%q' "$results"
# A hunt exits with 1 when it has found something: that is no reason not to join the parts.
array=$(sbatch --parsable --array="1-$shards" --cpus-per-task=2 --output="$results/part-%a.log" \
  --wrap "$words --threads 2 --shard \$SLURM_ARRAY_TASK_ID/$shards --results $folder/part\$SLURM_ARRAY_TASK_ID.jsonl")
sbatch --dependency="afterany:$array" --output="$results/merged.txt" \
  --wrap "$(printf '%q' "$clearway") lab merge $folder/part*.jsonl"
echo "the table will be in $results/merged.txt"
