"""Times libfovea, through its C interface, beside PyTorch's attention pinned to cuDNN on one GPU.

attention_bench.py LIBRARY [--shapes B:H:Sq:Skv:D[:kind],...] [--rounds N] [--slice SECONDS] [--backend NAME]
                   [--other NAME=FILE ...] [--host-cost N]

kind: f16, causal, pad (key lengths: item 0 full, the others 0.7164 of it), keys (also hides keys 11-63 of every
row). All are timed in random order per round in one process on N(0,1) data; a slice is preceded by half a slice of
the same kernel, because what ran before changes the clock for a while. Prints TFLOP/s of visible keys, the spread,
and the ratio of times to cuDNN: median and the lower bound of its 95 % interval (sign test over rounds). --other:
libraries with the entry points attn_fwd, attn_workspace and attn_head_dim. --host-cost: the median time of N calls
without waiting, and of a small kernel of PyTorch.
"""

import argparse
import ctypes as c
import pathlib
import random
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from fovea import _capi  # noqa: E402

CUDA = 2
CODES = {
    torch.bfloat16: (4, 16),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.int32: (0, 32),
    torch.bool: (6, 8),
}


class StudyCall(c.Structure):
    _fields_ = (
        [(n, c.c_void_p) for n in ("q", "k", "v", "o", "lse", "work", "stream")]
        + [(n, c.c_int) for n in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "sms")]
        + [("scale", c.c_float), ("pad", c.c_int)]
        + [(f"{t}_{s}", c.c_longlong) for t in "qkvo" for s in ("batch", "row", "head")]
    )


def tensor(t):
    code, bits = CODES[t.dtype]
    shape = (c.c_int64 * 5)(*t.shape)
    stride = (c.c_int64 * 5)(*t.stride())
    return _capi.Tensor(t.data_ptr(), CUDA, t.device.index, code, bits, 1, t.dim(), shape, stride)


class Layer:
    """A planned call of libfovea."""

    def __init__(self, library, backend, q, k, v, out, lse, lengths, mask, causal):
        self.api, self.keep = library, (q, k, v, out, lse, lengths, mask)
        config, attention, plan = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self.check(library.fovea_config_create, None, backend, 0, c.byref(config))
        options = _capi.LayerOptions(c.sizeof(_capi.LayerOptions), None, None, 0, 0, 0, 0, 0, 1)
        self.check(library.fovea_attention_create, c.byref(options), config, c.byref(attention))
        call = self.call = _capi.Call(
            struct_size=c.sizeof(_capi.Call), is_causal=causal, has_is_causal=1, window_left=-1, window_right=-1
        )
        call.q, call.k, call.v, call.out, call.lse = map(tensor, (q, k, v, out, lse))
        if lengths is not None:
            call.kv_lengths = tensor(lengths)
        if mask is not None:
            call.mask = tensor(mask)
        call.stream = torch.cuda.current_stream().cuda_stream
        receipt = c.c_void_p()
        self.check(library.fovea_attention_run, attention, c.byref(call), c.byref(receipt))
        self.receipt = library.fovea_receipt_json(receipt).decode()
        self.check(library.fovea_attention_plan, attention, c.byref(call), c.byref(plan))
        size = library.fovea_plan_workspace_bytes(plan)
        self.work = torch.full((size + 16,), 255, dtype=torch.uint8, device=q.device)
        self.run = library.fovea_plan_run
        self.arguments = (plan, c.byref(call), c.c_void_p(self.work.data_ptr()), c.c_size_t(size), None)

    def check(self, function, *arguments):
        error = c.c_void_p()
        if function(*arguments, c.byref(error)):
            raise RuntimeError(self.api.fovea_error_message(error).decode())

    def __call__(self):
        if self.run(*self.arguments):
            raise RuntimeError("fovea_plan_run failed")


def study(lib, q, k, v, o, lse):
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    work = torch.zeros(lib.attn_workspace(sms) // 4, dtype=torch.int32, device=q.device)
    a = StudyCall(
        q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(), work=work.data_ptr(),
        stream=torch.cuda.current_stream().cuda_stream, batch=q.shape[0], heads=q.shape[2], kv_heads=k.shape[2],
        seq_q=q.shape[1], seq_k=k.shape[1], sms=sms, scale=q.shape[3] ** -0.5,
    )
    for name, t in (("q", q), ("k", k), ("v", v), ("o", o)):
        for field, axis in (("batch", 0), ("row", 1), ("head", 2)):
            setattr(a, f"{name}_{field}", t.stride(axis))

    def launch(a=a, keep=(q, k, v, o, lse, work)):
        if lib.attn_fwd(c.byref(a)):
            raise RuntimeError("attn_fwd")

    return launch


def timed(f, n):
    """Milliseconds of one of n calls."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(max(1, n // 2)):
        f()
    start.record()
    for _ in range(n):
        f()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / n


def lower_bound(values):
    """The value that the median exceeds with 95 % confidence, whatever the distribution."""
    n, tail, k = len(values), 0.0, 0
    term = 0.5**n
    while tail + term <= 0.05:
        tail += term
        term = term * (n - k) / (k + 1)
        k += 1
    return sorted(values)[max(k - 1, 0)]


def host_cost(library, calls):
    q, k, v = (torch.randn(1, 128, 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    layer = Layer(library, None, q, k, v, torch.empty_like(q), torch.empty(1, 1, 128, device="cuda"), None, None, False)
    empty = torch.empty(1, device="cuda")

    def median(f):
        times = []
        for i in range(calls):
            if i % 200 == 0:
                torch.cuda.synchronize()  # the launch queue never fills
            start = time.perf_counter_ns()
            f()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1000

    median(layer)
    other = median(lambda: empty.fill_(0.0))
    print(f"host cost of fovea_plan_run from Python: {median(layer):.2f} us, of torch's fill_: {other:.2f} us")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("file", metavar="LIBRARY")
    parser.add_argument("--shapes", default="1:40:32760:32760:128,1:24:4608:4608:128")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=float, default=0.05)
    parser.add_argument("--backend")
    parser.add_argument("--other", action="append", default=[])
    parser.add_argument("--host-cost", type=int, default=0)
    args = parser.parse_args()
    library = _capi.load(args.file)
    for name in ("fovea_attention_plan", "fovea_plan_run"):
        getattr(library, name).restype = c.c_int32
    library.fovea_plan_workspace_bytes.restype = c.c_size_t
    library.fovea_plan_workspace_bytes.argtypes = [c.c_void_p]
    backend = args.backend.encode() if args.backend else None
    others = {}
    for item in args.other:
        name, file = item.split("=")
        others[name] = lib = c.CDLL(file)
        lib.attn_workspace.restype = c.c_longlong
    if args.host_cost:
        host_cost(library, args.host_cost)
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    begin = time.time()
    while time.time() - begin < 2:
        x @ x
        torch.cuda.synchronize()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"bf16 product of 8192 {2 * 8192**3 / timed(lambda: x @ x, 20) / 1e9:.0f} TFLOP/s", flush=True)
    for spec in args.shapes.split(","):
        fields = spec.split(":")
        batch, heads, seq_q, seq_kv, dim = map(int, fields[:5])
        kinds = fields[5:]
        dtype = torch.float16 if "f16" in kinds else torch.bfloat16
        q = torch.randn(batch, seq_q, heads, dim, device="cuda", dtype=dtype)
        k, v = (torch.randn(batch, seq_kv, heads, dim, device="cuda", dtype=dtype) for _ in range(2))
        out, lse = torch.empty_like(q), torch.empty(batch, heads, seq_q, device="cuda")
        lengths = mask = seen = None
        keys = [seq_kv] * batch
        if "pad" in kinds or "keys" in kinds:
            keys = [seq_kv] + [int(seq_kv * 0.7164)] * (batch - 1)
            lengths = torch.tensor(keys, device="cuda", dtype=torch.int32)
            seen = (torch.arange(seq_kv, device="cuda")[None] < lengths[:, None])[:, None, None]
        if "keys" in kinds:
            mask = torch.ones(batch, seq_kv, device="cuda", dtype=torch.bool)
            mask[:, 11:64] = False
            seen = seen & mask[:, None, None]
        causal = "causal" in kinds
        visible = sum(n - (53 if mask is not None else 0) for n in keys)
        flop = 4 * heads * seq_q * dim * visible * (0.5 if causal else 1)
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))

        def cudnn():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(qt, kt, vt, attn_mask=seen, is_causal=causal)

        ours = Layer(library, backend, q, k, v, out, lse, lengths, mask, causal)
        runs = {"cudnn": cudnn, "fovea": ours}
        if not kinds:
            runs |= {n: study(lib, q, k, v, out, lse) for n, lib in others.items() if lib.attn_head_dim() == dim}
        reference = cudnn().transpose(1, 2).float()
        for name, run in list(runs.items())[1:]:
            out.fill_(float("nan"))
            run()
            torch.cuda.synchronize()
            error = ((out.float() - reference).norm() / reference.norm()).item()
            if not error < 1e-2:
                print(f"WRONG {name} {spec}: relative L2 to cuDNN {error}", flush=True)
        del reference
        count = {n: max(1, int(args.slice * 1000 / timed(f, 2))) for n, f in runs.items()}
        times = {n: [] for n in runs}
        for _ in range(args.rounds):
            for name in random.sample(list(runs), len(runs)):
                times[name].append(timed(runs[name], count[name]))
        line = []
        for name, t in times.items():
            middle = statistics.median(t)
            text = f"{name} {flop / middle / 1e9:.0f} +-{50 * (max(t) - min(t)) / middle:.1f}%"
            if name != "cudnn":
                ratios = [a / b for a, b in zip(times["cudnn"], t)]
                text += f" ({statistics.median(ratios):.3f}, >= {lower_bound(ratios):.3f})"
            line.append(text)
        print(f"{spec:30s} {' | '.join(line)}", flush=True)


if __name__ == "__main__":
    main()
