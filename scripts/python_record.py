#!/usr/bin/env python3
"""Runs the tests of the Python modules with this interpreter and writes what ran, as docs/tested has it.

    python3 scripts/python_record.py [--build-dir build] [--record FILE] [--timeout SECONDS] [TEST.py ...]

Every file of tests/python and the wheel's, or the named ones, run in a process of their own with DIR/libfovea.so. The
record states versions, the kind of device, the cases of each file, the reasons of skips, and the graphs that compilers
made; no host, user or path. FILE: docs/tested/python-DEVICE.json unless named. A record is written only when no case
failed. The last line is "N passed, N failed, N skipped"; exit code 1 when a case failed or none ran. --sources prints
the digest of the present modules and tests, which a record of them has.
"""

import argparse
import collections
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import summarize_tests  # noqa: E402

SCHEMA = "fovea.python_tests/1"
FOLDER = "docs/tested"
# Whose versions a record states, where they are installed.
PACKAGES = (
    "torch", "triton", "numpy", "diffusers", "transformers", "scikit-build-core", "vllm-omni", "vllm", "flash-attn",
    "flash-attn-3", "flash-attn-4", "nvidia-cutlass-dsl", "sageattention",
)  # fmt: skip
# What a record is of: a change here makes it a record of something else.
SOURCES = ("python/fovea", "tests/python")

PROBE = """
import json, sys
import fovea
fovea.load_library(sys.argv[1])
stated = {"fovea": fovea.version(), "isa": fovea.explain()["facts"].get("isa", ""), "gpu": None}
try:
    import torch
    if torch.cuda.is_available():
        stated["gpu"] = {
            "name": torch.cuda.get_device_name(), "capability": "%d.%d" % torch.cuda.get_device_capability(),
            "count": torch.cuda.device_count(), "cuda": torch.version.cuda,
        }
except ImportError:
    pass
print(json.dumps(stated))
"""


def sources_digest():
    """A digest of the modules and their tests, whatever the checkout."""
    digest = hashlib.sha256()
    for path in sorted(path for name in SOURCES for path in (ROOT / name).rglob("*.py")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build_of(folder):
    """How the library was built, from CMake's cache; None where there is no cache."""
    cache = folder / "CMakeCache.txt"
    if not cache.is_file():
        return None
    text = cache.read_text()

    def value(name):
        found = re.search(rf"^{name}:\w+=(.*)$", text, re.M)
        return found.group(1) if found else ""

    cuda = value("FOVEA_ENABLE_CUDA") != "OFF"
    return {"type": value("CMAKE_BUILD_TYPE"), "cuda": (value("FOVEA_CUDA_ARCHS") or "all") if cuda else "off"}


def versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def system():
    try:
        release = platform.freedesktop_os_release()
    except (AttributeError, OSError):
        return platform.system()
    return release.get("PRETTY_NAME", platform.system())


def without_paths(text, build):
    """A skip's reason for readers elsewhere."""
    for path, name in ((sys.executable, "python3"), (str(build), "build"), (str(ROOT), "."), (sys.prefix, "python")):
        text = text.replace(path, name)
    return text


def run_file(path, build, timeout):
    """(row, counted graphs, failures) of one file of tests."""
    environment = {
        **os.environ, "TEST_SOURCE_DIR": str(ROOT), "TEST_BINARY_DIR": str(build), "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / f"{path.stem}.xml"
        command = [sys.executable, str(ROOT / "scripts/run_unittest.py"), str(path), str(result)]
        try:
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                errors="replace",
            )  # fmt: skip
            output, ended = done.stdout, done.returncode == 0
        except subprocess.TimeoutExpired as late:
            output, ended = (late.stdout or b"").decode(errors="replace"), False
        cases = summarize_tests.read_cases(result) or []
    states = collections.Counter(state for _, state, _ in cases)
    reasons = collections.Counter(without_paths(reason, build) for _, state, reason in cases if state == "skipped")
    failures = [name for name, state, _ in cases if state == "failed"]
    if not ended and not failures:
        failures = [f"{path.name} did not end by itself"]
    if failures:
        print(output[-6000:])
    counted = [json.loads(line) for line in re.findall(r"counted: (\{.*\})", output)]
    row = {"file": path.name, "passed": states["passed"], "failed": len(failures)}
    return {**row, "skipped": dict(sorted(reasons.items()))}, counted, failures


def in_lines(record):
    """JSON with an entry, and a row of a list, on a line."""
    entries = []
    for name, value in record.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        entries.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each file (1800)")
    parser.add_argument("--sources", action="store_true")
    parser.add_argument("files", nargs="*", metavar="TEST.py")
    arguments = parser.parse_args()
    if arguments.sources:
        print(sources_digest())
        return 0
    build = arguments.build_dir.resolve()
    names = [pathlib.Path(name).name for name in arguments.files]
    every = [*sorted((ROOT / "tests/python").glob("test_*.py")), ROOT / "tests/install/test_wheel.py"]
    unknown = set(names) - {path.name for path in every}
    if unknown:
        parser.error(f"no tests of the name {', '.join(sorted(unknown))}")
    folders = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-c", PROBE, str(build / "libfovea.so")]
    probed = subprocess.run(command, env=environment, capture_output=True, text=True)
    if probed.returncode:
        sys.exit(probed.stderr)
    stated = json.loads(probed.stdout.splitlines()[-1])
    rows, counted, failures = [], [], []
    for path in every:
        if not names or path.name in names:
            row, graphs, failed = run_file(path, build, arguments.timeout)
            rows.append(row)
            counted += graphs
            failures += failed
            skips = sum(row["skipped"].values())
            print(f"{path.name}: {row['passed']} passed, {row['failed']} failed, {skips} skipped", flush=True)
    gpu = stated["gpu"]
    device_class = "cpu" if gpu is None else "sm_" + gpu["capability"].replace(".", "")
    record = {
        "schema": SCHEMA,
        "date": datetime.date.today().isoformat(),
        "fovea": stated["fovea"],
        "sources": sources_digest(),
        "build": build_of(build),
        "device_class": device_class,
        "gpu": gpu,
        "processor": f"{platform.machine()} {stated['isa']}".strip(),
        "system": system(),
        "python": platform.python_version(),
        "packages": versions(),
        "files": rows,
        "graphs": counted,
    }
    file = arguments.record or ROOT / FOLDER / f"python-{device_class}.json"
    passed = sum(row["passed"] for row in rows)
    skipped = sum(sum(row["skipped"].values()) for row in rows)
    if not failures and passed:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(in_lines(record), encoding="utf-8")
        print(f"record: {file.name}")
    for name in failures:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failures)} failed, {skipped} skipped")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
