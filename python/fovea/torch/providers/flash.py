"""FLASH_ATTN_2 by the package flash_attn and FLASH_ATTN_3 by flash_attn_interface."""

from .provider import Provider, equal_head_sizes, need, no_masks, parameters, serves

_FUNCTIONS = ("flash_attn_func", "flash_attn_varlen_func")


class Flash(Provider):
    """What both generations share: dense and packed calls, causal from the bottom right, windows, grouped heads."""

    def check(self, module):
        need(module, *_FUNCTIONS)

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        yield from no_masks(problem, "choose FLASH_ATTN or TORCH_SDPA, or provider fovea")
        yield from equal_head_sizes(problem)
        if problem.head_dim % 8:
            yield ("head_dim", "head_dim", str(problem.head_dim), "multiples of 8", "choose FLASH_ATTN or TORCH_SDPA")

    def run(self, module, call):
        packed = call.layout == "packed"
        function = module.flash_attn_varlen_func if packed else module.flash_attn_func
        arguments = {"softmax_scale": call.scale, "causal": call.causal, "window_size": call.window}
        if packed:
            arguments.update(
                cu_seqlens_q=call.cu_seqlens_q,
                cu_seqlens_k=call.cu_seqlens_kv,
                max_seqlen_q=call.problem.max_document_q,
                max_seqlen_k=call.problem.max_document_kv,
            )
        if call.lse is not None and "return_attn_probs" in parameters(function):
            arguments["return_attn_probs"] = True
        result = function(*((call.q, call.k, call.v) if packed else call.bshd()), **arguments)
        out, lse = (result[0], result[1]) if isinstance(result, tuple) else (result, None)
        call.give(out, lse, layout="packed" if packed else "bshd")


class Flash2(Flash):
    package = "flash_attn"
    module = "flash_attn"
    install = "pip install flash-attn --no-build-isolation"
    distributions = ("flash-attn", "flash_attn")
    backends = ("FLASH_ATTN", "FLASH_ATTN_2")


class Flash3(Flash):
    package = "flash_attn_3"
    module = "flash_attn_interface"
    # flash-attn-interface of PyPI is an empty placeholder.
    install = "build hopper/ of github.com/Dao-AILab/flash-attention"
    distributions = ("flash-attn-3", "flash_attn_3")
    backends = ("FLASH_ATTN", "FLASH_ATTN_3")
