#!/usr/bin/env python3
"""Seconds and peak memory of one forward of diffusers' Wan transformers, with Fovea and with torch's attention.

    diffusers_forward.py [--models 1.3b 14b] [--backends ...] [--library build-cuda/libfovea.so] [--output FILE.json]

Random weights in bf16, 480x832, 81 frames: 32,760 tokens, 512 text tokens, one item. Every round runs each backend
once, in turn; the table has the median of the rounds, and how far the output is from the first row's. All together
ends within --box seconds. Needs diffusers and torch with CUDA; --models tiny --device cpu tries the program itself.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys
import time

START = time.monotonic()
SEED = 20260804
MODELS = {
    "1.3b": {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30},
    "14b": {"num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40},
    "tiny": {"num_attention_heads": 2, "ffn_dim": 64, "num_layers": 2, "attention_head_dim": 32},
}
BACKENDS = ("fovea", "_native_cudnn", "_native_flash")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["1.3b", "14b"], choices=MODELS)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--config", help="Fovea's configuration, JSON text")
    parser.add_argument("--rounds", type=int, default=7, help="rounds per model after the warm-up (default 7)")
    parser.add_argument("--box", type=float, default=100.0, help="seconds for everything (default 100)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true", help="compile the repeated blocks; takes minutes more")
    parser.add_argument("--library", dest="libfovea", help="libfovea.so, when it is not in the package")
    parser.add_argument("--output", help="all numbers as JSON")
    return parser.parse_args()


arguments = parse()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import fovea  # noqa: E402

if arguments.libfovea:
    fovea.load_library(arguments.libfovea)

import diffusers  # noqa: E402
import torch  # noqa: E402

import fovea.diffusers  # noqa: E402

CUDA = arguments.device.startswith("cuda")


def elapsed():
    return time.monotonic() - START


def say(text):
    print(f"[{elapsed():5.1f} s] {text}", flush=True)


def make(name):
    """The model, its parts in float32 where diffusers keeps them so, and inputs."""
    sizes = {"attention_head_dim": 128, "in_channels": 16, "out_channels": 16, "text_dim": 4096, **MODELS[name]}
    torch.manual_seed(SEED)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(arguments.device):
            model = diffusers.WanTransformer3DModel(freq_dim=256, cross_attn_norm=True, **sizes).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    for path, parameter in model.named_parameters():
        if any(part in path.split(".") for part in model._keep_in_fp32_modules or ()):
            parameter.data = parameter.data.float()
    frames, height, width = (21, 60, 104) if name != "tiny" else (3, 8, 12)
    inputs = {
        "hidden_states": torch.randn(1, 16, frames, height, width),
        "timestep": torch.tensor([700.0]),
        "encoder_hidden_states": torch.randn(1, 512, sizes["text_dim"]),
    }
    inputs = {key: value.to(arguments.device) for key, value in inputs.items()}
    for key in ("hidden_states", "encoder_hidden_states"):
        inputs[key] = inputs[key].to(torch.bfloat16)
    return model, inputs


def forward(model, inputs):
    """One forward: its output, seconds, and the most memory in GiB that torch had allocated meanwhile."""
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    with torch.inference_mode():
        out = model(**inputs, return_dict=False)[0]
    if CUDA:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return out, seconds, torch.cuda.max_memory_allocated() / 2**30 if CUDA else 0.0


def measure(name, last):
    """The rows of a model. The last model may use all the time that is left, another half of it."""
    model, inputs = make(name)
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{name}: {count / 1e9:.2f} G parameters")
    if arguments.compile:
        model.compile_repeated_blocks(fullgraph=True)
    rows, first = {}, None
    for backend in arguments.backends:
        rows[backend] = row = {"model": name, "backend": backend, "seconds": [], "peak_gib": 0.0, "error": None}
        try:
            model.set_attention_backend(backend)
            out = forward(model, inputs)[0].float()
        except Exception as error:  # a backend that cannot run is a row, not the end
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            say(f"{name} {backend}: {row['error']}")
            continue
        row["finite"] = bool(out.isfinite().all())
        if first is None:
            first = out
        row["rel_l2"] = float((out - first).norm() / first.norm())
        if backend == fovea.diffusers.NAME:
            print(fovea.diffusers.report(model), flush=True)
    until = arguments.box if last else elapsed() + (arguments.box - elapsed()) / 2
    longest = 0.0
    for number in range(arguments.rounds):
        begin = elapsed()
        if number and begin + longest > until:
            say(f"{name}: {number} rounds of {arguments.rounds}, the time is up")
            break
        for backend, row in rows.items():
            if row["error"] is None:
                model.set_attention_backend(backend)
                _, seconds, peak = forward(model, inputs)
                row["seconds"].append(seconds)
                row["peak_gib"] = max(row["peak_gib"], peak)
        longest = max(longest, elapsed() - begin)
    return list(rows.values())


def main():
    diffusers.utils.logging.set_verbosity_error()
    fovea.diffusers.register(arguments.config)
    device = torch.cuda.get_device_name() if CUDA else "cpu"
    head = f"{device}, torch {torch.__version__}, diffusers {diffusers.__version__}, fovea {fovea.version()}"
    if CUDA:
        head += f", cuDNN {torch.backends.cudnn.version()}"
    say(head)
    rows = []
    for name in arguments.models:
        rows += measure(name, last=name == arguments.models[-1])
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()
    if arguments.output:
        record = {"head": head, "compiled": arguments.compile, "rows": rows}
        pathlib.Path(arguments.output).write_text(json.dumps(record, indent=1) + "\n")
    say("done")
    print(f"\n{head}{', blocks compiled' if arguments.compile else ''}")
    columns = ("model", "backend", "median s", "min", "max", "rounds", "peak GiB", "rel_l2")
    print("{:6} {:15} {:>9} {:>8} {:>8} {:>6} {:>9} {:>8}".format(*columns))
    for row in rows:
        if row["error"] is not None:
            print(f"{row['model']:6} {row['backend']:15} {row['error']}")
            continue
        times = row["seconds"]
        print(
            f"{row['model']:6} {row['backend']:15} {statistics.median(times):9.4f} {min(times):8.4f} {max(times):8.4f} "
            f"{len(times):6} {row['peak_gib']:9.2f} {row['rel_l2']:8.1e}{'' if row['finite'] else '  not finite'}"
        )
    return 1 if any(row["error"] is not None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
