#!/usr/bin/env python3
"""Proves that the tests of cpu_flash reach every tail path: mutate_tails.py [BUILD [NAME...]]

Each mutation below breaks one tail in the kernels' source. Its kernels are compiled with the flags of the
build folder (build/ by default, already built), linked with the objects of cpu_flash_test, and the test must
fail. The sources in the tree are not touched. Takes about a minute per mutation on one core, so it is run by
hand after a change of the kernels, not in continuous integration; docs/performance/cpu.md has the last run.
NAME: only mutations whose names start so.
"""

import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "src/backends/cpu_flash"

# name: (file, text, replacement, occurrence)
MUTATIONS = {
    "product: steps after the last four": ("tile_multiply.hpp", "for (; n > 0; --n) {", "for (; n > 1; --n) {"),
    "scores: second run of a long head": ("tile_attention.hpp", "run = left < kScoreRun ? left : kScoreRun;",
                                          "run = left < kScoreRun ? left - 1 : kScoreRun;"),
    "scores: keys after the last whole strip": ("tile_attention.hpp", "    if (p < keys.end) {",
                                                "    if (p + 1 < keys.end) {"),
    "values: columns after the last register tile": ("tile_attention.hpp",
                                                     "for (int64_t d = 0; d < dim_v; d += kRows) {",
                                                     "for (int64_t d = 0; d + kRows <= dim_v; d += kRows) {"),
    "rows: lanes of the last tile": ("attend.hpp", "tile.rows = rows < lanes ? rows : lanes;",
                                     "tile.rows = rows < lanes ? (rows > 1 ? rows - 1 : rows) : lanes;"),
    "block: keys of the last block": ("pack.hpp",
                                      "const int64_t keys = rest < geometry.block_keys ? rest",
                                      "const int64_t keys = rest < geometry.block_keys ? (rest > 1 ? rest - 1 : rest)"),
    "packing: elements after the last four": ("elements.hpp", "  if (e == elements) return;",
                                              "  if (elements - e < 4 * L::kPerWord) return;"),
    "packing: partial load": ("elements.hpp", "for (int64_t i = 0; i < n && i < 4 * L::kPerWord; ++i)",
                              "for (int64_t i = 0; i + 1 < n && i < 4 * L::kPerWord; ++i)"),
    "packing: keys after the last whole vector": ("pack.hpp",
                                                  "const int64_t q = p + i < info.count ? p + i : info.count - 1;",
                                                  "const int64_t q = p + kLanes <= info.count ? p + i : 0;"),
    "packing: values after the last four keys": ("pack.hpp",
                                                 "const int64_t keys = info->count - p < 4 ? info->count - p : 4;",
                                                 "const int64_t keys = info->count - p < 4 ? 1 : 4;"),
    "packing: last columns of values": ("pack.hpp", "left > 0 ? load_partial<L>(rows[i] + d + part, left) : Quad{}",
                                        "left > 1 ? load_partial<L>(rows[i] + d + part, left - 1) : Quad{}"),
    "output: rows of the last vector": ("store_rows.hpp", "for (int64_t r = 0; r < valid; ++r) {",
                                        "for (int64_t r = 0; r + 1 < valid; ++r) {"),
    "output: last columns": ("store_rows.hpp", "for (int64_t c = 0; c < columns; ++c)",
                             "for (int64_t c = 0; c + 1 < columns; ++c)"),
    "output: columns after the last whole vector": ("store_rows.hpp", "for (; d < dim_v; d += kStep) {",
                                                    "for (; d < dim_v - kStep; d += kStep) {"),
    "packing: words after the last whole vector": ("elements.hpp", "for (; e + kStep <= elements; e += kStep",
                                                   "for (; e + 2 * kStep <= elements; e += kStep"),
    "mask: keys after the last four": ("mask_tile.hpp", "    for (; p < end; ++p) {", "    for (; p + 1 < end; ++p) {"),
    "parts: the last part of the keys": ("attend.hpp", "for (int64_t p = 1; p < count; ++p) {",
                                         "for (int64_t p = 1; p + 1 < count; ++p) {"),
    "parts: a part that saw no key": ("attend.hpp", "  block.clear_unstarted(tile);", "  (void)tile;"),
    "pairs: maxima beyond one rounding": ("tile_attention.hpp", "careful |= !V::all(rounds_once<V>(max[r]));",
                                         "(void)r;"),
    "pairs: rows beside a mask": ("pair_exponent.hpp", "V::select(V::equal(term, V::set(0.f)), once, twice)", "twice"),
    "pairs packing: values that are not finite": ("pack.hpp", "V::nonfinite_half(largest)", "false"),
    "pairs output: subnormal numbers": ("store_rows.hpp", "if (!V::any_subnormal(even, odd)) return", "return"),
    "amx: keys after the last whole strip": ("attend_amx.hpp", "for (int64_t i = valid * kLanes; i < kStrip",
                                             "for (int64_t i = (valid + 1) * kLanes; i < kStrip"),
    "amx: steps of a head": ("attend_amx.hpp", "step < work.depth; ++step", "step + 1 < work.depth; ++step"),
    "amx: steps of the keys": ("attend_amx.hpp", "at < end; at += kStrip", "at + kStrip < end; at += kStrip"),
    "amx: columns after the last strip": ("attend_amx.hpp", "strips_v = (params.dim_v + kStrip - 1) / kStrip;",
                                          "strips_v = params.dim_v / kStrip;"),
    "amx: the last strips' stores": ("attend_amx.hpp", "if (p + kAhead >= keys.end) store_accumulators(held);",
                                     "if (p + kAhead < keys.end) store_accumulators(held);"),
    "amx: weights that grow": ("attend_amx.hpp", "      if (large) {", "      if (false) {"),
    "amx: references beyond one rounding": ("attend_amx.hpp", "large_reference |= !V::all(rounds_once<V>(base[r]));",
                                            "(void)r;"),
    "amx: rows beside a mask": ("pair_exponent.hpp", "V::select(V::equal(term, V::set(0.f)), once, twice)", "twice"),
    "amx: terms that do more than hide": ("attend_amx.hpp",
                                          "only_hide &= V::all(V::equal(V::select(hides, V::set(0.f), term), "
                                          "V::set(0.f)));", ""),
    "amx: terms past the last key": ("attend_amx.hpp", "const bool has_term = i + odd < termed;",
                                     "const bool has_term = i + odd + 1 < termed;"),
    "amx: hidden values in a shared step": ("attend.hpp", "shared_step = keys.end < info.count",
                                            "shared_step = keys.end > info.count"),
    "amx: words after the last of a query": ("attend.hpp", "for (float* x = tile.q + words * lanes; x < end; ++x)",
                                             "for (float* x = tile.q + (words + 1) * lanes; x < end; ++x)"),
    "amx packing: elements after the last step": ("pack_amx.hpp", "(__mmask32{1} << left) - 1",
                                                  "(__mmask32{1} << (left - 1)) - 1"),
    "amx packing: the last key": ("pack_amx.hpp", "p < info.count ? params.head_dim : 0",
                                  "p + 1 < info.count ? params.head_dim : 0"),
    "amx packing: the last value": ("pack_amx.hpp", "if (at < info->count) valid", "if (at + 1 < info->count) valid"),
}


def mutate(copy, name):
    file, text, replacement = MUTATIONS[name]
    path = copy / FOLDER / file
    source = path.read_text(encoding="utf-8")
    if source.count(text) != 1:
        sys.exit(f"mutate_tails.py: '{text}' occurs {source.count(text)} times in {file}; update the mutation")
    path.write_text(source.replace(text, replacement), encoding="utf-8")


def chosen(prefixes):
    """The mutations whose names start with one of the prefixes; all without any."""
    return [name for name in MUTATIONS if not prefixes or name.startswith(tuple(prefixes))]


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    commands = {entry["file"]: entry for entry in
                json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))}
    cpu = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    survivors = []
    for name in MUTATIONS:
        if name not in chosen(sys.argv[2:]):
            continue
        # The best instruction set of this machine runs in the test, and so do the ones below it.
        kernels = ["kernels_generic.cpp", "kernels_avx2.cpp"]
        for prefix, kernel, flag in (("amx", "kernels_amx.cpp", "amx_bf16"),
                                     ("pairs", "kernels_avx512bf16.cpp", "avx512_bf16")):
            if name.startswith(prefix):
                kernels = [kernel] if flag in cpu else []
        if not kernels:
            print(f"not run  {name}: this CPU has no such instructions", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(ROOT / "src", copy / "src")
            shutil.copytree(ROOT / "include", copy / "include")
            mutate(copy, name)
            objects = []
            for kernel in kernels:
                entry = commands[str(ROOT / FOLDER / kernel)]
                words = shlex.split(entry["command"].replace(str(ROOT / "src"), str(copy / "src"))
                                    .replace(f"-I{ROOT} ", f"-I{copy} "))
                # The fault alone should fail the test, not a warning about it; -O1 is enough.
                words = [word for word in words if word != "-Werror" and word != "-MD"]
                for option in ("-MT", "-MF"):
                    if option in words:
                        at = words.index(option)
                        del words[at:at + 2]
                objects.append(str(copy / (kernel + ".o")))
                words[words.index("-o") + 1] = objects[-1]
                subprocess.run(words + ["-O1"], cwd=entry["directory"], check=True, capture_output=True)
            test = copy / "test"
            harness = next((build / "tests/backends/cpu_flash").rglob("cpu_flash_test.cpp.o"))
            subprocess.run(["c++", str(harness), *objects, str(build / "libfovea_internal.a"), "-lgtest",
                            "-lgtest_main", "-lpthread", "-fopenmp", "-ldl", "-o", str(test)], check=True)
            result = subprocess.run([str(test), "--gtest_brief=1", "--gtest_fail_fast"], capture_output=True)
            print(f"{'found   ' if result.returncode else 'SURVIVED'} {name}", flush=True)
            if not result.returncode:
                survivors.append(name)
    if survivors:
        print(f"{len(survivors)} of {len(chosen(sys.argv[2:]))} mutations survived")
        return 1
    print("every mutation that ran was found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
