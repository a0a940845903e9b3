#!/usr/bin/env python3
"""The records of docs/validation count, and the library's table of them is current.

check_validation.py [--write]. A record is what `fovea check --contract --record F` or `python -m fovea.check` writes;
its file is called BACKEND[-PACKAGE]-DEVICE_CLASS.json. A record counts when every case that ran passes and some path
has a replayed case; on CUDA the replayed ones must have been captured. It covers, for each of its paths with a replayed
case, the kinds that ran there with their head sizes. --write renews src/platform/validation_table.hpp from the records.
"""

import json
import re
import sys

import source_text

FOLDER = "docs/validation/"
TABLE = "src/platform/validation_table.hpp"
REPLAY = "replay"
# Paths that no record verifies, as can_be_verified() has them.
UNINSPECTED = ("unverified", "runtime_mask_dependent", "rocm_unverified", "rocm_runtime_mask_dependent",
               "npu_unverified", "npu_masked_fallback")
TEXTS = ("backend", "provider", "path", "platform", "device_class", "device", "compiler", "fovea", "date")
BOUND = 1e-2


def faults(name, text):
    """What keeps one record from counting."""
    try:
        record = json.loads(text)
    except ValueError as error:
        return [f"is not JSON: {error}"]
    if not isinstance(record, dict) or record.get("schema") != "fovea.validation/1":
        return ["is not of schema fovea.validation/1"]
    found = [f"lacks {key}" for key in TEXTS if not isinstance(record.get(key), str) or not record[key]]
    if found:
        return found
    if name != file_name(record):
        found.append(f"should be called {file_name(record)}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]):
        found.append("has no date of the form YYYY-MM-DD")
    for key in ("atol", "rtol"):
        if not isinstance(record.get(key), (int, float)) or not 0 < record[key] <= BOUND:
            found.append(f"has {key} {record.get(key)}, which is not in (0, {BOUND}]")
    if record["platform"] != "cpu" and not record.get("driver"):
        found.append("lacks driver")
    if record["provider"] != "fovea" and not record.get("library"):
        found.append("lacks library")
    if record["platform"] == "cuda" and record.get("captured") is not True:
        found.append("has replayed cases that were not captured")
    cases = record.get("cases")
    ran = [case for case in cases if case.get("ran")] if isinstance(cases, list) else []
    failed = [case.get("problem") for case in ran if case.get("pass") is not True or case.get("outside") != 0]
    found += [f"has a case that failed: {problem}" for problem in failed]
    if not paths_of(record):
        found.append(f"has no path with a case of the kind '{REPLAY}'")
    if record.get("pass") is not True:
        found.append("does not pass")
    return found


def provider_of(record):
    """The provider without its version, and the version; both of the library for cudnn."""
    words = record["provider"].split(" ", 2)
    if words[0] in ("package", "plugin"):
        return " ".join(words[:2]), words[2] if len(words) > 2 else ""
    return words[0], (record.get("library") or "").removeprefix("cudnn ")


def file_name(record):
    provider, _ = provider_of(record)
    between = f"-{provider.split()[1]}-" if " " in provider else "-"
    return f"{record['backend']}{between}{record['device_class']}.json"


def paths_of(record):
    """What ran, as {path: {kind: [heads]}}; only paths with a replayed case that can be verified."""
    paths = {}
    for case in record["cases"] if isinstance(record["cases"], list) else []:
        if not case.get("ran"):
            continue
        heads = paths.setdefault(case.get("path"), {}).setdefault(case.get("kind"), [])
        words = dict(re.findall(r"\b(d|dv=)(\d+)\b", case.get("problem") or ""))
        head = f"{words.get('d')}/{words.get('dv=', words.get('d'))}"
        if head not in heads:
            heads.append(head)
    return {path: kinds for path, kinds in paths.items() if REPLAY in kinds and path not in UNINSPECTED}


def rows_of(texts):
    rows = []
    for path in sorted(texts):
        if not (path.startswith(FOLDER) and path.endswith(".json")):
            continue
        record = json.loads(texts[path])
        provider, library = provider_of(record)
        for kernel, kinds in sorted(paths_of(record).items()):
            passed = ", ".join(" ".join([kind, *heads]) for kind, heads in kinds.items())
            values = [path[len(FOLDER):], record["backend"], provider, library, record["fovea"], kernel,
                      record["platform"], record["device_class"], record["date"], passed]
            rows.append("    {" + ", ".join(json.dumps(value) for value in values) + "},")
    return rows


def table(texts):
    rows = rows_of(texts)
    if rows:
        body = "\n".join(["inline constexpr ValidationRecord kRows[] = {", *rows, "};",
                          "inline constexpr std::span<const ValidationRecord> kRecords = kRows;"])
    else:
        body = "inline constexpr std::span<const ValidationRecord> kRecords;"
    return f"""// The records of docs/validation. Generated by scripts/check_validation.py --write; do not edit.
// clang-format off
#pragma once

#include <span>

#include "fovea/validation.hpp"

namespace fovea::validation {{

{body}

}}  // namespace fovea::validation
"""


def check(texts):
    complaints = []
    for path, text in texts.items():
        if path.startswith(FOLDER) and path.endswith(".json"):
            complaints += [f"{path}: {fault}" for fault in faults(path[len(FOLDER):], text)]
    if not complaints and texts.get(TABLE) != table(texts):
        complaints.append(f"{TABLE} is not current; run scripts/check_validation.py --write")
    return complaints


def sample(**changes):
    cases = [{"kind": kind, "problem": f"bf16 b1 h1 s{i} d64 dv=32", "ran": True, "path": "cuda.x", "outside": 0,
              "pass": True} for i, kind in enumerate(("dense", "key padding", REPLAY))]
    record = {"schema": "fovea.validation/1", "backend": "FLASH_ATTN", "provider": "fovea", "path": "cuda.x",
              "platform": "cuda", "device_class": "sm_90", "device": "a GPU", "driver": "1.0", "library": None,
              "compiler": "GNU 12", "fovea": "0.1.0", "date": "2026-01-31", "atol": 0.01, "rtol": 0.01,
              "captured": True, "pass": True, "cases": cases}
    record.update(changes)
    texts = {FOLDER + "FLASH_ATTN-sm_90.json": json.dumps(record)}
    return {**texts, TABLE: table(texts)}


def broken(**changes):
    """A record whose last case is changed."""
    texts = sample()
    record = json.loads(texts[FOLDER + "FLASH_ATTN-sm_90.json"])
    record["cases"][-1].update(changes)
    texts[FOLDER + "FLASH_ATTN-sm_90.json"] = json.dumps(record)
    return texts


FAULTS = {
    "no JSON": {FOLDER + "a.json": "{"},
    "other schema": sample(schema="fovea.run/1"),
    "other name": sample(device_class="sm_80"),
    "other backend": sample(backend="FLASH_ATTN_3"),
    "package not in the name": sample(provider="package fa4 4.0", library="package fa4 4.0"),
    "no date": sample(date="yesterday"),
    "no driver": sample(driver=None),
    "wider bound": sample(atol=0.1),
    "not captured": sample(captured=False),
    "vendor without version": sample(provider="cudnn"),
    "failed case": broken(**{"pass": False}),
    "elements outside": broken(outside=3),
    "other path": broken(path="cuda.y"),
    "uninspected path": broken(path="unverified"),
    "refused kind": broken(ran=False),
    "stale table": {**sample(), TABLE: table({})},
}
CLEAN = sample()


def main():
    def wanted(name):
        return name == TABLE or name.startswith(FOLDER)

    texts = source_text.read_files(wanted)
    if "--write" in sys.argv:
        (source_text.ROOT / TABLE).write_text(table(texts), encoding="utf-8")
        texts = source_text.read_files(wanted)
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
