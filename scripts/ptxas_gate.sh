#!/usr/bin/env bash
# Runs one compilation and fails it when ptxas spilled registers or serialised wgmma: such a kernel
# is correct and slow, and nothing else would tell. Usage: ptxas_gate.sh COMMAND...
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$@" 2>"$log" || status=$?
cat "$log" >&2
((status == 0)) || exit "$status"

# C7510, C7519, C7520: wgmma serialised, fences or waits injected; C7512: accumulator registers moved.
if grep -qE '\(C75(10|12|19|20)\)|[1-9][0-9]* bytes spill|Registers are spilled' "$log"; then
  echo 'ptxas_gate: the kernel above would be slow; the compilation counts as failed' >&2
  previous=
  for argument in "$@"; do
    [[ $previous != -o ]] || rm -f "$argument"
    previous=$argument
  done
  exit 1
fi
