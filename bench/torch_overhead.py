#!/usr/bin/env python3
"""What a call of fovea.torch costs on the host beyond the C interface: torch_overhead.py [--library FILE] [--check US]

A tiny problem on one thread, in microseconds of that thread's processor time, the best of several rounds. --check
ends with 1 when attention() with a key costs more than US beyond fovea_plan_run.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch  # noqa: E402

import fovea  # noqa: E402
import fovea.torch  # noqa: E402
from fovea.torch import _op  # noqa: E402


def microseconds(call, count=3000, rounds=7):
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(count):
            call()
        best = min(best, (time.thread_time() - start) / count)
    return best * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="libfovea")
    parser.add_argument("--check", type=float)
    arguments = parser.parse_args()
    if arguments.libfovea:
        fovea.load_library(arguments.libfovea)
    torch.set_num_threads(1)
    key = fovea.torch.resolve_key(backend="FLASH_ATTN", threads=1)
    with torch.inference_mode():
        q = torch.randn(1, 1, 1, 16)
        out, _ = _op.op(q, q, q, key=key)
        (prepared,) = _op._local.calls.values()
        prepared.call.out.data = out.data_ptr()
        bare = microseconds(
            lambda: prepared.run_plan(
                prepared.plan,
                prepared.reference,
                prepared.workspace,
                prepared.workspace_bytes,
                prepared.error_reference,
            )
        )
        rows = {
            "attention(key=key)": microseconds(lambda: fovea.torch.attention(q, q, q, key=key)),
            "attention()": microseconds(lambda: fovea.torch.attention(q, q, q)),
            "torch.ops.fovea.attention": microseconds(lambda: _op.op(q, q, q, key=key)),
            "scaled_dot_product_attention": microseconds(
                lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)
            ),
        }
    print(f"{'fovea_plan_run':32}{bare:8.1f} us")
    for name, total in rows.items():
        print(f"{name:32}{total:8.1f} us   {total - bare:+8.1f} us")
    beyond = rows["attention(key=key)"] - bare
    return 1 if arguments.check is not None and beyond > arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
