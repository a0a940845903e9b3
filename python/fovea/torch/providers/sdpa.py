"""TORCH_SDPA by torch.nn.functional.scaled_dot_product_attention."""

from fovea import _plugin

from .provider import Provider, causal_is_square, serves

_FLOAT, _BFLOAT, _BOOL = 2, 4, 6


class Sdpa(Provider):
    package = "torch"
    module = "torch"
    install = "pip install torch"
    distributions = ("torch",)
    backends = ("TORCH_SDPA",)

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        if problem.layout == 2:
            yield ("packed", "layout", "packed", "bshd, bhsd", "pad the documents or choose FLASH_ATTN")
        if problem.lse:
            yield ("lse", "lse", "asked for", "not returned", "choose FLASH_ATTN, or provider fovea")
        if problem.window_left != -1 or (problem.window_right != -1 and not problem.causal):
            got = f"{problem.window_left},{problem.window_right}"
            yield ("window", "window", got, "none", "choose FLASH_ATTN")
        yield from causal_is_square(problem)
        if problem.causal and (problem.mask_kind or problem.has_kv_lengths):
            yield ("causal", "causal", "with a mask or lengths", "alone", "choose FLASH_ATTN")
        if problem.mask_kind:
            mask, own = problem.mask_dtype, problem.dtype
            additive = mask.code in (_FLOAT, _BFLOAT)
            if additive and (mask.code, mask.bits) != (own.code, own.bits):
                yield ("mask_dtype", "mask", "additive of another type than q", "q's type", "convert the mask")
            if additive and problem.has_kv_lengths:
                yield ("kv_lengths", "kv_lengths", "with an additive mask", "one of them", "put lengths in the mask")
            if not additive and mask.code != _BOOL:
                yield ("mask_dtype", "mask", "of integers", "bool or q's type", "convert the mask to bool")

    def run(self, module, call):
        q, k, v = call.bhsd()
        mask = call.mask
        if mask is not None:
            if call.problem.mask_kind == _plugin.MASKS.index("keys"):
                mask = mask[:, None, None, :]
            elif mask.dim() == 3:
                mask = mask[:, None]
        if call.kv_lengths is not None:
            keys = module.arange(k.shape[2], device=k.device)
            seen = (keys < call.kv_lengths[:, None])[:, None, None, :]
            mask = seen if mask is None else mask & seen
        arguments = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        out = module.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=call.causal, scale=call.scale, **arguments
        )
        call.give(out, layout="bhsd")
