"""FLASH_ATTN on ROCm by the package aiter."""

import torch as _torch

from .provider import Provider, equal_head_sizes, need, serves


class Aiter(Provider):
    package = "aiter"
    module = "aiter"
    install = "pip install amd-aiter"
    distributions = ("amd-aiter", "aiter")
    backends = ("FLASH_ATTN",)

    def check(self, module):
        need(module, "flash_attn_func", "flash_attn_varlen_func")

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        yield from equal_head_sizes(problem)
        if problem.head_dim % 8:
            yield ("head_dim", "head_dim", str(problem.head_dim), "multiples of 8", "choose TORCH_SDPA")
        if problem.mask_kind and (problem.mask_dtype.code, problem.mask_dtype.bits) != (6, 8):
            yield ("mask_dtype", "mask", "not boolean", "bool", "convert the mask to bool")
        if problem.lse and (problem.mask_kind or problem.has_kv_lengths):
            yield ("lse", "lse", "asked for with padding", "without", "leave the log-sum-exp out")

    def run(self, module, call):
        arguments = {"softmax_scale": call.scale, "causal": call.causal, "window_size": call.window}
        if call.lse is not None:
            arguments["return_lse"] = True
        if call.layout == "packed":
            result = module.flash_attn_varlen_func(
                call.q, call.k, call.v, call.cu_seqlens_q, call.cu_seqlens_kv, call.problem.max_document_q,
                call.problem.max_document_kv, **arguments,
            )  # fmt: skip
            call.give(*_parts(result), layout="packed")
        elif call.mask is None and call.kv_lengths is None:
            call.give(*_parts(module.flash_attn_func(*call.bshd(), **arguments)), layout="bshd")
        else:
            call.give(_without_padding(module, call, arguments), layout="bshd")


def _parts(result):
    return (result[0], result[1]) if isinstance(result, (tuple, list)) else (result, None)


def _without_padding(module, call, arguments):
    """A call whose hidden keys are left out of packed keys and values; all query rows are kept."""
    q, k, v = call.bshd()
    batch, seq_q = q.shape[:2]
    seq_kv = k.shape[1]
    seen = _torch.ones((batch, seq_kv), dtype=_torch.bool, device=q.device)
    if call.mask is not None:
        seen = seen & call.mask
    if call.kv_lengths is not None:
        seen = seen & (_torch.arange(seq_kv, device=q.device) < call.kv_lengths[:, None])
    starts_q = _torch.arange(batch + 1, dtype=_torch.int32, device=q.device) * seq_q
    starts_kv = _torch.zeros(batch + 1, dtype=_torch.int32, device=q.device)
    starts_kv[1:] = seen.sum(1).cumsum(0)
    result = module.flash_attn_varlen_func(
        q.reshape(batch * seq_q, *q.shape[2:]), k[seen], v[seen], starts_q, starts_kv, seq_q, seq_kv, **arguments
    )
    out, _ = _parts(result)
    return out.reshape(batch, seq_q, *out.shape[1:])
