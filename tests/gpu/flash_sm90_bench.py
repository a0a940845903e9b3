"""Times the Hopper kernel beside PyTorch's cuDNN attention in one process, in random order per round, on N(0,1) data.

flash_sm90_bench.py LIBRARY [--shapes B:H:Sq:Skv:D[:kind],...] [--rounds N] [--slice SECONDS] [--other NAME=FILE ...]
kind: f16, float (float32 output), causal, pad (key lengths: item 0 full, others 0.7164 of it), keys (hides keys 11-63
of every row), bnN (block of N keys), listP (random block lists, P percent of the blocks), evenP
(the same with equal counts), alikeP (every two rows the same), bandW (a band of W percent
and the first block), radialD (decay D percent, 21 frames); lists: TFLOP/s per kept block, of bq64 or 128 queries x
bk64 or 128 keys; at64: q, k and v begin in the middle of a 128-byte line; dense: beside the dense kernel, with the
ratio of dense time * density to the lists' time. topkP: the selection of blocks alone at sparsity P percent, in
microseconds beside reading q and k at 4 TB/s. Libraries given with --other have the study's entry points attn_fwd,
attn_workspace and attn_head_dim.
"""
import argparse, ctypes as C, random, statistics, time
import torch, torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend

DEV = "cuda"
SMS = torch.cuda.get_device_properties(0).multi_processor_count


class Call(C.Structure):
    _fields_ = ([(n, C.c_void_p) for n in ("q", "k", "v", "out", "lse", "workspace", "stream",
                                          "kv_lengths", "key_mask", "counts", "indices")]
                + [(n, C.c_int) for n in ("batch", "heads", "heads_kv", "seq_q", "seq_kv", "head_dim", "dim_v",
                                          "multiprocessors", "f16", "band", "left", "right", "out_float", "block_kv")]
                + [("scale", C.c_float)] + [(n, C.c_int) for n in ("list_block_q", "list_block_kv")]
                + [(f"{t}_{s}", C.c_longlong) for t in "qkvo" for s in ("batch", "row", "head")])


class Topk(C.Structure):
    _fields_ = ([(n, C.c_void_p) for n in ("q", "k", "workspace", "stream")]
                + [(n, C.c_int) for n in ("batch", "heads", "heads_kv", "seq_q", "seq_kv", "head_dim", "f16", "block")]
                + [("sparsity", C.c_double), ("scale", C.c_float), ("padding", C.c_int)]
                + [(f"{t}_{s}", C.c_longlong) for t in "qk" for s in ("batch", "row", "head")])


class Study(C.Structure):
    _fields_ = ([(n, C.c_void_p) for n in ("q", "k", "v", "o", "lse", "work", "stream")]
                + [(n, C.c_int) for n in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "sms")]
                + [("scale", C.c_float), ("pad", C.c_int)]
                + [(f"{t}_{s}", C.c_longlong) for t in "qkvo" for s in ("batch", "row", "head")])


def strides(a, **tensors):
    for n, t in tensors.items():
        for s, d in (("batch", 0), ("row", 1), ("head", 2)):
            setattr(a, f"{n}_{s}", t.stride(d))


def ours(lib, q, k, v, o, lse, block_kv=0, lengths=None, mask=None, causal=False, lists=None,
         blocks=(128, 128)):
    a = Call(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=o.data_ptr(), lse=lse.data_ptr(),
             stream=torch.cuda.current_stream().cuda_stream, batch=q.shape[0], heads=q.shape[2], heads_kv=k.shape[2],
             seq_q=q.shape[1], seq_kv=k.shape[1], head_dim=q.shape[3], dim_v=v.shape[3], multiprocessors=SMS,
             f16=q.dtype == torch.float16, band=causal, left=-1, right=0 if causal else -1,
             out_float=o.dtype == torch.float32, block_kv=block_kv, scale=q.shape[3] ** -0.5,
             list_block_q=blocks[0], list_block_kv=blocks[1])
    if lengths is not None: a.kv_lengths = lengths.data_ptr()
    if mask is not None: a.key_mask = mask.data_ptr()
    if lists is not None: a.counts, a.indices = (t.data_ptr() for t in lists)
    strides(a, q=q, k=k, v=v, o=o)
    size = lib.flash_sm90_call(C.byref(a), 0)
    if size < 0: raise RuntimeError(f"flash_sm90_call: {size}")
    work = torch.full((size,), 255, dtype=torch.uint8, device=DEV)
    a.workspace = work.data_ptr()

    def launch(a=a, keep=(q, k, v, o, lse, work, lengths, mask, lists)):
        rc = lib.flash_sm90_call(C.byref(a), 2)
        if rc: raise RuntimeError(f"flash_sm90_call: {rc}")
    return launch


def planned(lib, problem, columns):
    """The lists of a sparse problem on the device, and the share of blocks kept."""
    rows = lib.planned_lists_call(problem.encode(), None, None)
    if rows < 0: raise RuntimeError(problem)
    counts, indices = torch.zeros(rows, dtype=torch.int32), torch.zeros(rows, columns, dtype=torch.int32)
    lib.planned_lists_call(problem.encode(), C.c_void_p(counts.data_ptr()), C.c_void_p(indices.data_ptr()))
    return (counts.to(DEV), indices.to(DEV)), counts.sum().item() / (rows * columns)


def selection(lib, q, k, block, sparsity):
    a = Topk(q=q.data_ptr(), k=k.data_ptr(), stream=torch.cuda.current_stream().cuda_stream, batch=q.shape[0],
             heads=q.shape[2], heads_kv=k.shape[2], seq_q=q.shape[1], seq_kv=k.shape[1], head_dim=q.shape[3],
             f16=q.dtype == torch.float16, block=block, sparsity=sparsity, scale=q.shape[3] ** -0.5)
    strides(a, q=q, k=k)
    size = lib.block_topk_call(C.byref(a), 0)
    if size < 0: raise RuntimeError(f"block_topk_call: {size}")
    work = torch.full((size,), 255, dtype=torch.uint8, device=DEV)
    a.workspace = work.data_ptr()

    def launch(a=a, keep=(q, k, work)):
        rc = lib.block_topk_call(C.byref(a), 2)
        if rc: raise RuntimeError(f"block_topk_call: {rc}")
    return launch


def study(lib, q, k, v, o, lse):
    work = torch.zeros(lib.attn_workspace(SMS) // 4, dtype=torch.int32, device=DEV)
    a = Study(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(), lse=lse.data_ptr(), work=work.data_ptr(),
              stream=torch.cuda.current_stream().cuda_stream, batch=q.shape[0], heads=q.shape[2], kv_heads=k.shape[2],
              seq_q=q.shape[1], seq_k=k.shape[1], sms=SMS, scale=q.shape[3] ** -0.5)
    strides(a, q=q, k=k, v=v, o=o)

    def launch(a=a, keep=(q, k, v, o, lse, work)):
        if lib.attn_fwd(C.byref(a)): raise RuntimeError("attn_fwd")
    return launch


def timed(f, n):
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(max(1, n // 2)): f()  # untimed: what ran before changes the clock for a while
    a.record()
    for _ in range(n): f()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("lib")
    ap.add_argument("--shapes", default="1:40:32760:32760:128,1:24:4608:4608:128")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--slice", type=float, default=0.1)
    ap.add_argument("--other", action="append", default=[])
    ap.add_argument("--also", action="append", default=[], help="NAME=FILE: another build of this library")
    args = ap.parse_args()
    libs = {"ours": C.CDLL(args.lib)}
    for x in args.also: libs[x.split("=")[0]] = C.CDLL(x.split("=")[1])
    for l in libs.values(): l.flash_sm90_call.restype = l.block_topk_call.restype = C.c_longlong
    others = {}
    for x in args.other:
        l = C.CDLL(x.split("=")[1])
        l.attn_workspace.restype = C.c_longlong
        others[x.split("=")[0]] = l
    x = torch.randn(8192, 8192, device=DEV, dtype=torch.bfloat16)
    t0 = time.time()
    while time.time() - t0 < 2:
        x @ x
        torch.cuda.synchronize()
    print(f"gemm 8192 bf16 {2 * 8192**3 / timed(lambda: x @ x, 20) / 1e9:.0f} TFLOP/s", flush=True)
    rows = []
    for spec in args.shapes.split(","):
        f = spec.split(":")
        B, H, Sq, Sk, D = map(int, f[:5])
        kinds = f[5:]
        dtype = torch.float16 if "f16" in kinds else torch.bfloat16
        skipped = 32 if "at64" in kinds else 0

        def randn(rows):
            return torch.randn(skipped + B * rows * H * D, device=DEV, dtype=dtype)[skipped:].view(B, rows, H, D)
        q, k = randn(Sq), randn(Sk)
        block_q, block_kv = 64 if "bq64" in kinds else 128, 64 if "bk64" in kinds else 128
        chosen = next((x for x in kinds if x.startswith("topk")), None)
        if chosen:
            g = selection(libs["ours"], q, k, block_q, int(chosen[4:]) / 100)
            n = max(1, int(args.slice * 1000 / timed(g, 2)))
            us = sorted(1000 * timed(g, n) for _ in range(args.rounds))
            read = (q.numel() + k.numel()) * 2 / 4e12 * 1e6
            rows.append(f"{spec:34s} {statistics.median(us):.1f} us ({us[0]:.1f} to {us[-1]:.1f}), "
                        f"reading {read:.1f} us: {statistics.median(us) / read:.2f}")
            print(rows[-1], flush=True)
            continue
        v = randn(Sk)
        o = torch.empty(B, Sq, H, D, device=DEV, dtype=torch.float32 if "float" in kinds else dtype)
        lse = torch.empty(B, H, Sq, device=DEV)
        qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
        lengths = mask = attn_mask = None
        keys = [Sk] * B
        if "pad" in kinds:
            keys = [Sk] + [int(Sk * 0.7164)] * (B - 1)
            lengths = torch.tensor(keys, device=DEV, dtype=torch.int32)
            attn_mask = (torch.arange(Sk, device=DEV)[None] < lengths[:, None])[:, None, None]
        if "keys" in kinds:
            m = torch.ones(B, Sk, device=DEV, dtype=torch.bool)
            m[:, 11:64] = False
            mask = m.to(torch.uint8)
            attn_mask = (attn_mask if attn_mask is not None else True) & m[:, None, None]
        causal = "causal" in kinds
        lists, kept = None, 1.0
        for kind in kinds:
            if not kind.startswith(("list", "even", "alike", "band", "radial")): continue
            n, m = -(-Sq // block_q), -(-Sk // block_kv)
            if kind.startswith("radial"):
                lists, kept = planned(libs["ours"], f"bf16 b1 h1 s{Sq} d{D} sparse=radial(frames=21,tokens={Sq // 21},"
                                                    f"decay={int(kind[6:]) / 100})", m)
                continue
            if kind.startswith("list"):
                on = torch.rand(n, m, device=DEV) < int(kind[4:]) / 100
            elif kind.startswith("alike"):
                on = torch.rand((n + 1) // 2, m, device=DEV).argsort(1).argsort(1) < m * int(kind[5:]) // 200 * 2
                on = on.repeat_interleave(2, 0)[:n]
            elif kind.startswith("even"):
                on = torch.rand(n, m, device=DEV).argsort(1).argsort(1) < m * int(kind[4:]) // 100
            else:
                i, j = torch.arange(n, device=DEV)[:, None] * m // n, torch.arange(m, device=DEV)[None]
                on = ((i - j).abs() <= m * int(kind[4:]) / 200) | (j == 0)
            counts = on.sum(1, dtype=torch.int32)
            order = torch.argsort((~on).to(torch.uint8), dim=1, stable=True).to(torch.int32)
            lists, kept = (counts.contiguous(), order.contiguous()), on.float().mean().item()
        visible = sum(min(n, Sk) - (53 if mask is not None else 0) for n in keys)
        flop = 4 * H * Sq * D * visible * (0.5 if causal else 1) * kept

        def cudnn():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(qt, kt, vt, attn_mask=attn_mask, is_causal=causal)
        fs = {}
        try:
            ref = cudnn().transpose(1, 2).float() if lists is None else None
            fs["cudnn"] = cudnn
        except RuntimeError as e:
            ref = None
            print(spec, "cudnn:", str(e)[:80])
        block = next((int(x[2:]) for x in kinds if x.startswith("bn")), 0)
        for n, l in libs.items():
            try: fs[n] = ours(l, q, k, v, o, lse, block, lengths, mask, causal, lists,
                                (block_q, block_kv))
            except RuntimeError as e:
                if n == "ours": print(spec, n, e)
        whole = {n: 1.0 for n in fs}
        if "dense" in kinds:
            fs.pop("cudnn", None)
            fs["dense"], whole["dense"] = ours(libs["ours"], q, k, v, o, lse), 1 / kept
            fs["ours"]()
            ref = o.float()
        if not kinds or kinds == [f"bn{block}"]:
            for n, l in others.items():
                if l.attn_head_dim() == D: fs[n] = study(l, q, k, v, o, lse)
        for n, g in fs.items():
            if n not in ("cudnn", "dense") and ref is not None:
                o.fill_(float("nan"))
                g()
                torch.cuda.synchronize()
                e = ((o.float() - ref).norm() / ref.norm()).item()
                if not e < 1e-2: print(f"WRONG {n} {spec}: {e}", flush=True)
        del ref
        count = {n: max(1, int(args.slice * 1000 / timed(g, 2))) for n, g in fs.items()}
        res = {n: [] for n in fs}
        order = list(fs)
        for r in range(args.rounds):
            for n in random.sample(order, len(order)): res[n].append(timed(fs[n], count[n]))
        med = {n: statistics.median(t) for n, t in res.items()}
        line = [f"{n} {flop * whole.get(n, 1) / med[n] / 1e9:.0f}±{50 * (max(res[n]) - min(res[n])) / med[n]:.1f}%"
                + (f" ({statistics.median(a / b for a, b in zip(res['cudnn'], res[n])):.3f})"
                   if "cudnn" in fs and n != "cudnn" else
                   f" ({statistics.median(a * kept / b for a, b in zip(res['dense'], res[n])):.3f})"
                   if "dense" in fs and n != "dense" else "")
                for n in fs]
        rows.append(f"{spec:34s} " + " | ".join(line))
        print(rows[-1], flush=True)
        del q, k, v, o, lse, qt, kt, vt, fs
    print("TFLOP/s (median ratio to cuDNN)")
    print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
