#!/usr/bin/env bash
# Runs the CUDA kernels under compute-sanitizer on small problems, each compared with the oracle:
# memcheck, synccheck, racecheck and initcheck, in one time box. The last line is the summary.
set -uo pipefail -f
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/gpu_sanitize.sh [--build-dir DIR] [--tools "memcheck synccheck ..."] [--box SECONDS]

  --build-dir DIR   where scripts/gpu_suite.sh built (build-gpu)
  --tools LIST      "memcheck synccheck racecheck initcheck"
  --box SECONDS     for everything (480); what did not get its turn is named
TEXT
}

directory=build-gpu tools="memcheck synccheck racecheck initcheck" box=480
while (($#)); do
  case $1 in
    --build-dir) directory=$2; shift 2 ;;
    --tools) tools=$2; shift 2 ;;
    --box) box=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
sanitizer=$(command -v compute-sanitizer) || { echo "gpu_sanitize: compute-sanitizer is not on the PATH"; exit 2; }

# One process per backend: name, then its problems, one per line. Lengths leave tails in both axes.
cases() {
  case $1 in
    FLASH_ATTN_3) printf '%s\n' \
      'bf16 b1 h2 s300 d128 lse=1' 'f16 b2 h2 s130 d64 sk=200 kvlen=200,77 lse=1' \
      'bf16 b1 h4 s260 d96 hk=2 mask=causal lse=1' \
      'bf16 b1 h2 s150 d256 sk=333' 'bf16 b2 h2 s200 d128 mask=keys lse=1' 'bf16 b1 h2 s400 d128 window=100,30' \
      'bf16 b1 h2 s300 d80 dv=48 layout=packed docs=100:80,200:220 lse=1' \
      'bf16 b1 h1 s200 d128 sk=4200 out=f32' \
      'bf16 b1 h2 s129 d128 layout=bhsd' 'bf16 b1 h2 s200 d32 sk=1' ;;
    FLASH_ATTN_2) printf '%s\n' \
      'bf16 b1 h2 s300 d128 lse=1' 'f16 b2 h2 s130 d64 sk=200 kvlen=200,0 lse=1' \
      'f32 b1 h4 s140 d96 hk=2 mask=causal lse=1' \
      'bf16 b1 h2 s150 d256 sk=133' 'f32 b2 h2 s100 d128 mask=bool maskdims=bhq lse=1' 'f16 b1 h2 s200 d40 mask=bias' \
      'bf16 b1 h2 s200 d128 window=60,30' 'f16 b1 h2 s77 d17 dv=5' \
      'bf16 b1 h2 s300 d80 dv=48 layout=packed docs=100:80,200:220 lse=1' ;;
    TORCH_SDPA) printf '%s\n' \
      'f32 b1 h2 s130 d128 lse=1' 'bf16 b2 h2 s100 d64 sk=200 kvlen=200,77 lse=1' \
      'f16 b1 h4 s160 d96 hk=2 mask=causal' \
      'f32 b1 h2 s100 d40 mask=bias lse=1' 'f32 b1 h2 s150 d32 layout=packed docs=100:80,50:70 lse=1' ;;
    RADIAL_ATTN) printf '%s\n' \
      'bf16 b1 h2 s1000 d128 sparse=radial(frames=8,tokens=120) lse=1' 'f16 b2 h2 s640 d64 sparse=radial(frames=5)' ;;
    LOCAL_SPARSE_ATTN) printf '%s\n' 'bf16 b1 h4 s1000 d96 hk=2 sparse=local(frames=2,window=2) lse=1' ;;
    BLOCK_SPARSE_ATTN) printf '%s\n' \
      'bf16 b1 h2 s1000 d128 sparse=random(density=0.4,q=64,kv=64) lse=1' \
      'bf16 b1 h4 s2100 d128 hk=2 sparse=topk(sparsity=0.5,block=128) lse=1' \
      'f16 b2 h2 s1300 d64 kvlen=1300,700 sparse=topk(sparsity=0.6,block=64,prefix=70) lse=1' ;;
  esac
}

deadline=$((SECONDS + box)) clean=0 failed=() late=() ran=0
for tool in $tools; do
  for backend in FLASH_ATTN_3 FLASH_ATTN_2 TORCH_SDPA RADIAL_ATTN LOCAL_SPARSE_ATTN BLOCK_SPARSE_ATTN; do
    # Its flags between thread blocks are told from whatever the workspace held before.
    [[ $tool:$backend == initcheck:FLASH_ATTN_3 ]] && continue
    # Averages of tokens that do not exist are copied with their group and not used.
    [[ $tool:$backend == initcheck:BLOCK_SPARSE_ATTN ]] && continue
    left=$((deadline - SECONDS))
    if ((left <= 0)); then
      late+=("$tool:$backend")
      continue
    fi
    arguments=() count=0
    while IFS= read -r problem; do
      arguments+=(--problem "$problem")
      count=$((count + 1))
    done < <(cases "$backend")
    log=$directory/sanitize-$tool-$backend.log begin=$SECONDS
    timeout --kill-after=5 "$left" "$sanitizer" --tool "$tool" --error-exitcode 77 --print-limit 5 \
      "$directory/fovea" check --device cuda --backend "$backend" "${arguments[@]}" >"$log" 2>&1 </dev/null
    status=$?
    ran=$((ran + count))
    if ((status == 0)); then
      clean=$((clean + count))
      verdict=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1)
      echo "ok    $tool $backend: $count problems, $((SECONDS - begin)) s; $verdict"
    else
      failed+=("$tool:$backend")
      echo "FAIL  $tool $backend: exit code $status, $((SECONDS - begin)) s; $log:"
      grep -E '=========|error|FAIL' "$log" | head -25
    fi
  done
done
((${#late[@]} == 0)) || echo "no turn within $box s: ${late[*]}"
echo "gpu_sanitize: $clean of $ran problems clean, ${#failed[@]} runs failed, ${#late[@]} without a turn"
((${#failed[@]} + ${#late[@]} == 0))
