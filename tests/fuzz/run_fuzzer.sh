#!/usr/bin/env bash
# run_fuzzer.sh clean|planted PROGRAM CORPUS MAX_LEN [REASON_TO_SKIP]
#
# clean: the program must find nothing in FOVEA_FUZZ_SECONDS (default 8).
# planted: the program holds a planted fault and must find it within 90 seconds.
# The seed of the run is printed; FOVEA_FUZZ_SEED repeats one.
set -euo pipefail

kind=$1 program=$2 corpus=$3 max_len=$4 skip=${5:-}
if [[ -n $skip ]]; then
  echo "skipped: $skip"
  exit 77
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/found"
seconds=${FOVEA_FUZZ_SECONDS:-8}
[[ $kind == planted ]] && seconds=90
seed=${FOVEA_FUZZ_SEED:-1}
options=(-seed="$seed" -max_total_time="$seconds" -max_len="$max_len" -timeout=10 -rss_limit_mb=2048
  -artifact_prefix="$scratch/found/" -print_final_stats=1)
[[ -f $corpus.dict ]] && options+=(-dict="$corpus.dict")
mkdir "$scratch/grown"

status=0
"$program" "${options[@]}" "$scratch/grown" "$corpus" >"$scratch/log" 2>&1 || status=$?
runs=$(grep -o 'stat::number_of_executed_units: *[0-9]*' "$scratch/log" | grep -o '[0-9]*$' || true)
found=$(find "$scratch/found" -type f | head -n 1)

if [[ $kind == clean ]]; then
  if [[ $status != 0 || -n $found ]]; then
    grep -v '^#' "$scratch/log" | head -n 60
    [[ -n $found ]] && { echo "input (seed $seed):"; od -An -c "$found" | head -n 40; }
    exit 1
  fi
  echo "nothing found in ${runs:-?} runs, $seconds seconds, seed $seed"
  exit 0
fi
if [[ $status == 0 || -z $found ]]; then
  tail -n 20 "$scratch/log"
  echo "the planted fault was not found in $seconds seconds, seed $seed"
  exit 1
fi
echo "the planted fault was found: $(grep -m 1 -E 'ERROR|runtime error|deadly signal' "$scratch/log")"
