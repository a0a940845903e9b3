#!/usr/bin/env bash
# scripts/ptxas_gate.sh lets good compilations through and fails those that ptxas complains about.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compiler=$folder/compiler
object=$folder/kernel.o

# compile STATUS TEXT: runs a compiler that says TEXT, writes its object and exits with STATUS.
compile() {
  printf '#!/bin/sh\necho "$TEXT" >&2\n: >"$4"\nexit %s\n' "$1" >"$compiler"
  chmod +x "$compiler"
  TEXT=$2 scripts/ptxas_gate.sh "$compiler" -c kernel.cu -o "$object" 2>"$folder/log"
}
# `-o OBJECT` are the compiler's third and fourth arguments.
expect() {
  local wanted=$1 status=0
  rm -f "$object"
  compile "$2" "$3" || status=$?
  [[ $status == "$wanted" ]] || { echo "'$3': exit code $status, expected $wanted" >&2; exit 1; }
  grep -qF "${3%%$'\n'*}" "$folder/log" || { echo "'$3' was not passed on" >&2; exit 1; }
  if [[ $wanted == 0 && ! -e $object ]] || [[ $wanted == 1 && -e $object ]]; then
    echo "'$3': the object is $([[ -e $object ]] && echo there || echo gone)" >&2
    exit 1
  fi
}

expect 0 0 'ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'
expect 0 0 'ptxas info    : (C7508) something that costs nothing'
expect 1 0 'ptxas info    : 8 bytes stack frame, 12 bytes spill stores, 12 bytes spill loads'
expect 1 0 'ptxas warning : Registers are spilled to local memory in function f, 8 bytes spill stores'
for code in C7510 C7512 C7519 C7520; do
  expect 1 0 "ptxas info    : ($code) Potential Performance Loss: wgmma.mma_async"
done
expect 3 3 'error: no such file'
echo passed
