#!/usr/bin/env python3
"""Proves that the tests of cpu_flash reach every tail path: mutate_tails.py [BUILD]

Each mutation below breaks one tail in the kernels' source. Its kernels are compiled with the flags of the
build folder (build/ by default, already built), linked with the objects of cpu_flash_test, and the test must
fail. The sources in the tree are not touched. Takes about a minute per mutation on one core, so it is run by
hand after a change of the kernels, not in continuous integration; docs/performance/cpu.md has the last run.
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
}


def mutate(copy, name):
    file, text, replacement = MUTATIONS[name]
    path = copy / FOLDER / file
    source = path.read_text(encoding="utf-8")
    if source.count(text) != 1:
        sys.exit(f"mutate_tails.py: '{text}' occurs {source.count(text)} times in {file}; update the mutation")
    path.write_text(source.replace(text, replacement), encoding="utf-8")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    commands = {entry["file"]: entry for entry in
                json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))}
    # The best instruction set of this machine runs in the test, and so do the ones below it.
    kernels = ["kernels_generic.cpp", "kernels_avx2.cpp"]
    survivors = []
    for name in MUTATIONS:
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
        print(f"{len(survivors)} of {len(MUTATIONS)} mutations survived")
        return 1
    print(f"all {len(MUTATIONS)} mutations were found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
