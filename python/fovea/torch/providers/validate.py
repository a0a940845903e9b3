"""Makes the validation record of a package's kernel on this machine's GPU.

    python -m fovea.torch.providers.validate fa4 --record fa4_dense-sm_90.json

The recipe of docs/validation for what the path takes: dense calls, unequal lengths, and one captured graph per length
that is replayed with other values, each against softmax in float64. Exits with 1 when a case fails. A bound package is
reported as supported only with such a record: bind("fa4", records={"fa4": FILE}).
"""

import argparse
import ctypes
import datetime
import importlib.metadata
import json
import platform
import sys

import torch

import fovea
import fovea.torch
from fovea.torch import providers

# Package: backend, path, and the distribution whose compiler makes its kernels.
VALIDATED = {"fa4": ("FLASH_ATTN_4", "fa4_dense", "nvidia-cutlass-dsl")}
DIMENSIONS = ((32, 32), (64, 64), (80, 48), (128, 128), (192, 128), (256, 256))
TOLERANCE = 1e-2
# Relative L2 error of bfloat16 outputs and absolute error of the log-sum-exp, docs/contract.md.
REL_L2, LSE = 6e-3, 1e-3
LENGTHS = (127, 640, 1024)


def oracle(q, k, v):
    """softmax in float64 of [B,S,H,D] tensors: out and lse."""
    a, b, c = (t.double().transpose(1, 2) for t in (q, k, v))
    group = a.shape[1] // b.shape[1]
    b, c = b.repeat_interleave(group, 1), c.repeat_interleave(group, 1)
    scores = a @ b.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1) @ c).transpose(1, 2), torch.logsumexp(scores, -1)


def tensors(seed, batch, heads, heads_kv, seq_q, seq_kv, dim, dim_v):
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def make(seq, count, size):
        return torch.randn(batch, seq, count, size, generator=generator, device="cuda", dtype=torch.bfloat16)

    return make(seq_q, heads, dim), make(seq_kv, heads_kv, dim), make(seq_kv, heads_kv, dim_v)


def judge(case, given, kept, out, lse):
    """Fills a case with how far the outputs are off, and whether it passes."""
    expected, expected_lse = oracle(*kept)
    error = (out.double() - expected).abs()
    case.update(
        max_abs=error.max().item(),
        rel_l2=((out.double() - expected).norm() / expected.norm()).item(),
        lse_max_abs=(lse.double() - expected_lse).abs().max().item(),
        outside=int((error > TOLERANCE + TOLERANCE * expected.abs()).sum()),
        form=out.shape == expected.shape and out.dtype == torch.bfloat16 and out.is_cuda and out.is_contiguous(),
        finite=bool(out.isfinite().all() and lse.isfinite().all()),
        inputs_unchanged=all(torch.equal(a, b) for a, b in zip(given, kept)),
    )
    close = case["outside"] == 0 and case["rel_l2"] <= REL_L2 and case["lse_max_abs"] <= LSE
    case["pass"] = close and case["form"] and case["finite"] and case["inputs_unchanged"]
    return case


def once(kind, key, given, seed):
    """One call; a refusal is a case that did not run, with its reasons."""
    kept = [t.clone() for t in given]
    q, k, v = given
    problem = f"bf16 b{q.shape[0]} h{q.shape[2]} s{q.shape[1]} d{q.shape[3]}"
    for name, value, usual in (
        ("sk", k.shape[1], q.shape[1]),
        ("hk", k.shape[2], q.shape[2]),
        ("dv", v.shape[3], q.shape[3]),
    ):
        problem += "" if value == usual else f" {name}={value}"
    case = {"kind": kind, "problem": f"{problem} lse=1 seed={seed}"}
    try:
        out, lse, receipt = fovea.torch.attention(*given, key=key, return_lse=True, return_receipt=True)
    except fovea.UnsupportedError as refused:
        return {**case, "ran": False, "reasons": [reason.message for reason in refused.reasons]}
    case.update(ran=True, path=receipt["path"], instance=receipt["instance"])
    return judge(case, given, kept, out, lse)


def replayed(key, length):
    """A captured graph, run again with other values."""
    given = tensors(length, 1, 4, 2, length, length, 128, 128)
    case = once("replay", key, given, length)
    if not case["ran"]:
        return case
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = fovea.torch.attention(*given, key=key, return_lse=True)
    for old, new in zip(given, tensors(length + 1, 1, 4, 2, length, length, 128, 128)):
        old.copy_(new)
    out.fill_(float("nan"))
    lse.fill_(float("nan"))
    kept = [t.clone() for t in given]
    graph.replay()
    torch.cuda.synchronize()
    return judge(case, given, kept, out, lse)


def driver_version():
    """The NVIDIA driver's version, from its management library."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    text = ctypes.create_string_buffer(96)
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, len(text)):
        raise RuntimeError("libnvidia-ml.so.1 does not say which driver runs")
    library.nvmlShutdown()
    return text.value.decode()


def record(package):
    """The record of a package that is bound."""
    backend, path, compiler = VALIDATED[package]
    (row,) = providers.status(package)
    key = fovea.torch.resolve_key({"default": {"backend": backend, "provider": "package"}})
    cases = []
    for seed, (dim, dim_v) in enumerate(DIMENSIONS):
        for kind, shape in (
            ("dense", (1, 2, 2, 1024, 1024)),
            ("dense", (2, 2, 1, 333, 333)),
            ("unequal lengths", (2, 4, 2, 127, 1024)),
            ("unequal lengths", (1, 4, 4, 1024, 77)),
        ):
            cases.append(once(kind, key, tensors(seed, *shape, dim, dim_v), seed))
    cases += [replayed(key, length) for length in LENGTHS]
    device = torch.cuda.get_device_properties(0)
    return {
        "schema": "fovea.validation/1",
        "backend": backend,
        "provider": f"package {package}",
        "path": path,
        "platform": "cuda",
        "device_class": f"sm_{device.major}{device.minor}",
        "device": device.name,
        "driver": driver_version(),
        "library": f"{package} {row['version']}",
        "compiler": f"{compiler} {importlib.metadata.version(compiler)}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "fovea": fovea.version(),
        "facts": {"cuda": torch.version.cuda, "name": device.name, "sm": f"{device.major}{device.minor}"},
        "date": datetime.date.today().isoformat(),
        "atol": TOLERANCE,
        "rtol": TOLERANCE,
        "captured": True,
        "pass": all(case.get("pass", True) for case in cases) and any(case["ran"] for case in cases),
        "cases": cases,
    }


def text(made):
    """A record as the text of its file."""
    return json.dumps(made, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("package", choices=VALIDATED)
    parser.add_argument("--record", required=True, metavar="FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 2
    (row,) = providers.bind(options.package)
    if row["state"] != "bound":
        print(f"{options.package} is absent: {row['cause']}; {row['install']}", file=sys.stderr)
        return 2
    made = record(options.package)
    with open(options.record, "w", encoding="utf-8") as file:
        file.write(text(made))
    ran = [case for case in made["cases"] if case["ran"]]
    passed = sum(case["pass"] for case in ran)
    refused = len(made["cases"]) - len(ran)
    print(f"{made['library']} on {made['device']}: {passed} of {len(ran)} cases pass, {refused} refused")
    for case in made["cases"]:
        if not case["ran"] or not case["pass"]:
            print(json.dumps(case))
    return 0 if made["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
