#!/usr/bin/env bash
# Builds with CUDA and runs the tests that need a GPU, in time boxes; the last lines are the summary.
# Needs CMake, nvcc and g++, and no network; see docs/performance/h200.md.
set -uo pipefail -f
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/gpu_suite.sh [options]

  --build-dir DIR   where to build, or what was built (build-gpu)
  --cuda ARCHS      all, auto, sm80 or sm90 (auto)
  --prefix DIR      where CMake finds nlohmann-json, CLI11 and GoogleTest, as made by
                    scripts/collect_build_dependencies.sh (then DIR/usr)
  --no-build        run what DIR holds already, also when it was built under another path
  --label LABEL     gpu or multi_gpu (gpu)
  --box SECONDS     for all programs together (240); those that did not get their turn are named
  --jobs N          parallel compilations (the processors)
  --filter REGEX    only programs whose name matches
TEXT
}

directory=build-gpu archs=auto prefix= build=1 label=gpu box=240 filter=. jobs=$(nproc)
while (($#)); do
  case $1 in
    --build-dir) directory=$2; shift 2 ;;
    --cuda) archs=$2; shift 2 ;;
    --prefix) prefix=$2; shift 2 ;;
    --no-build) build=0; shift ;;
    --label) label=$2; shift 2 ;;
    --box) box=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

start=$SECONDS
if ((build)); then
  cmake -S . -B "$directory" -DCMAKE_BUILD_TYPE=Release -DFOVEA_ENABLE_CUDA=ON "-DFOVEA_CUDA_ARCHS=$archs" \
    -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_PYTHON=OFF ${prefix:+"-DCMAKE_PREFIX_PATH=$prefix"} &&
    cmake --build "$directory" --target gpu_tests --target fovea_cli --parallel "$jobs" ||
    { echo "gpu_suite: the build failed after $((SECONDS - start)) s"; exit 1; }
  echo "gpu_suite: built in $((SECONDS - start)) s"
fi
[[ -f $directory/gpu_tests.txt ]] || { echo "gpu_suite: $directory holds no GPU tests"; exit 2; }
"$directory/fovea" devices

# A line of gpu_tests.txt: label, name, seconds, kind, program, arguments; the first line is the
# folder it was built in.
results=$directory/test-results
mkdir -p "$results"
deadline=$((SECONDS + box))
passed=0 failed=() late=() skipped=0
{
  read -r built_in
  while IFS='|' read -r its_label name limit kind program arguments; do
    [[ $its_label == "$label" && $name =~ $filter ]] || continue
    left=$((deadline - SECONDS))
    if ((left <= 0)); then
      late+=("$name")
      continue
    fi
    log=$results/$name.log
    begin=$SECONDS
    [[ $kind == plain ]] || arguments+=" --gtest_output=xml:$results/$name.xml"
    # shellcheck disable=SC2086
    timeout --kill-after=5 $((left < limit ? left : limit)) "$directory/${program#"$built_in"/}" $arguments \
      >"$log" 2>&1 </dev/null
    status=$?
    if [[ $kind == plain ]]; then
      ((status == 0)) && echo "ok    $name: $(tail -1 "$log"), $((SECONDS - begin)) s" && continue
      failed+=("$name")
      echo "FAIL  $name: exit code $status, $((SECONDS - begin)) s; $log:"
      tail -15 "$log"
      continue
    fi
    cases=$(grep -c '^\[       OK \]' "$log")
    skips=$(grep -c '^\[  SKIPPED \] .*ms)$' "$log")
    passed=$((passed + cases)) skipped=$((skipped + skips))
    if ((status == 0)); then
      echo "ok    $name: $cases passed, $skips skipped, $((SECONDS - begin)) s"
      continue
    fi
    failed+=("$name")
    why="exit code $status"
    ((status == 124 || status == 137)) && why="no end within its time"
    ((status == 142)) && why="a case took longer than its time"
    echo "FAIL  $name: $why, $cases passed, $skips skipped, $((SECONDS - begin)) s; $log:"
    grep -E '^\[  FAILED  \] .*(ms\)|param)|Failure' "$log" | sort -u | head -20
    grep '^\[ RUN' "$log" | tail -1
    grep -vE '^\[' "$log" | tail -15
  done
} <"$directory/gpu_tests.txt"

((${#late[@]} == 0)) || echo "no turn within $box s: ${late[*]}"
((${#failed[@]} == 0)) || echo "failed: ${failed[*]}"
echo "gpu_suite: $passed cases passed, $skipped skipped, ${#failed[@]} programs failed, ${#late[@]} without a turn"
((${#failed[@]} + ${#late[@]} == 0))
