"""FLASH_ATTN_4 by the CuTe package, flash_attn.cute."""

import importlib

import torch as _torch

from .provider import Provider, need, no_masks, parameters, serves

# Compute capabilities that the package has a rule for.
_JUDGED = (9, 10, 11)


class Flash4(Provider):
    package = "fa4"
    module = "flash_attn.cute"
    install = "pip install flash-attn-4"
    distributions = ("flash-attn-4", "flash_attn_4")
    backends = ("FLASH_ATTN", "FLASH_ATTN_4")

    def check(self, module):
        need(module, "flash_attn_func", "flash_attn_varlen_func")

    def capability(self):
        """The major compute capability of the current device; 0 without one."""
        return _torch.cuda.get_device_capability()[0] if _torch.cuda.is_available() else 0

    def validator(self, module):
        try:
            rule = getattr(importlib.import_module("flash_attn.cute.interface"), "_validate_head_dims", None)
        except ImportError:
            rule = None
        capability = self.capability()
        if rule is None or capability not in _JUDGED:
            return None
        return lambda head_dim, dim_v, alignment: rule(head_dim, dim_v, capability, alignment)

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        yield from no_masks(problem, "choose FLASH_ATTN_2 or TORCH_SDPA")
        if problem.dtype.code not in (2, 4) or problem.dtype.bits != 16:
            yield ("dtype", "dtype", f"{problem.dtype.bits} bits", "f16, bf16", "convert q, k and v")

    def run(self, module, call):
        packed = call.layout == "packed"
        function = module.flash_attn_varlen_func if packed else module.flash_attn_func
        left, right = (None if size == -1 else size for size in call.window)
        arguments = {"softmax_scale": call.scale, "causal": call.causal}
        if (left, right) != (None, 0 if call.causal else None):
            arguments["window_size"] = (left, right)
        if packed:
            arguments.update(cu_seqlens_q=call.cu_seqlens_q, cu_seqlens_k=call.cu_seqlens_kv)
        accepted = parameters(function)
        if call.lse is not None and "return_lse" in accepted:
            arguments["return_lse"] = True
        if packed and "max_seqlen_q" in accepted:
            arguments.update(max_seqlen_q=call.problem.max_document_q, max_seqlen_k=call.problem.max_document_kv)
        result = function(*((call.q, call.k, call.v) if packed else call.bshd()), **arguments)
        out, lse = (result[0], result[1]) if isinstance(result, tuple) else (result, None)
        call.give(out, lse, layout="packed" if packed else "bshd")
