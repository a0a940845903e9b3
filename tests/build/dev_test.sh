#!/usr/bin/env bash
# dev_test.sh SOURCE_DIR: what ./dev says to wrong arguments and to a system where things are missing.
set -u
cd "$1"

failures=0

# expect STATUS TEXT COMMAND...: the command ends with STATUS and prints TEXT.
expect() {
  local status=$1 text=$2 output actual
  shift 2
  output=$("$@" 2>&1 </dev/null)
  actual=$?
  if [[ $actual != "$status" || $output != *"$text"* ]]; then
    printf 'FAILED: %s\n  expected %s and "%s"\n  got %s and "%s"\n' "$*" "$status" "$text" "$actual" "$output"
    failures=$((failures + 1))
  fi
}

expect 0 'demo' ./dev help
expect 2 "unknown verb 'biuld'" ./dev biuld
expect 2 "unknown preset 'fast'; accepted: release, debug, asan, tsan, cuda" ./dev build --preset fast
expect 2 '--cuda accepts all, auto, sm80 or sm90' ./dev build --cuda sm70
expect 2 '--sanitize accepts asan or tsan' ./dev test --sanitize ubsan
expect 2 '--jobs needs a number' ./dev test --jobs many
expect 2 '-R needs a value' ./dev test -R
expect 2 "test does not know '--verbose'" ./dev test --verbose
expect 2 "build does not know the option '--fast'" ./dev build --fast
expect 2 "unknown check 'spelling'; there are:" ./dev check spelling

# A system with bash and little else: nothing can be installed, so the command is printed.
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
for tool in bash dirname nproc cat id; do ln -s "$(command -v $tool)" "$bare/$tool"; done
expect 2 'cmake' env PATH="$bare" bash ./dev demo
expect 2 'apt-get install -y --no-install-recommends' env PATH="$bare" bash ./dev demo
printf '#!%s\nexit 1\n' "$(command -v bash)" >"$bare/pacman"
chmod +x "$bare/pacman"
expect 2 'pacman -S --needed' env PATH="$bare" bash ./dev demo

if ((failures)); then exit 1; fi
echo "all messages are as expected"
