"""SAGE_ATTN and its variants by the package sageattention."""

from .provider import Provider, causal_is_square, equal_head_sizes, need, no_masks, serves

_FUNCTIONS = {
    "SAGE_ATTN": "sageattn",
    "SAGE_ATTN_2_8_8": "sageattn_qk_int8_pv_fp8_cuda",
    "SAGE_ATTN_2_8_16": "sageattn_qk_int8_pv_fp16_cuda",
    "SAGE_ATTN_2_8_8_SM90": "sageattn_qk_int8_pv_fp8_cuda_sm90",
}
_LARGEST_HEAD = 128


class Sage(Provider):
    package = "sageattention"
    module = "sageattention"
    install = "pip install git+https://github.com/thu-ml/SageAttention --no-build-isolation"
    distributions = ("sageattention",)
    backends = tuple(_FUNCTIONS)

    def check(self, module):
        need(module, "sageattn")

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        function = _FUNCTIONS.get(backend)
        if function is not None and not hasattr(module, function):
            yield ("package", "sageattention", f"no {function}", f"a build with {function}", self.install)
        yield from no_masks(problem, "choose FLASH_ATTN or TORCH_SDPA")
        yield from equal_head_sizes(problem)
        yield from causal_is_square(problem)
        if problem.head_dim > _LARGEST_HEAD:
            yield ("head_dim", "head_dim", str(problem.head_dim), f"up to {_LARGEST_HEAD}", "choose FLASH_ATTN")

    def run(self, module, call):
        arguments = {
            "tensor_layout": "HND" if call.layout == "bhsd" else "NHD",
            "is_causal": call.causal,
            "sm_scale": call.scale,
        }
        if call.lse is not None:
            arguments["return_lse"] = True
        result = getattr(module, _FUNCTIONS[call.backend])(call.q, call.k, call.v, **arguments)
        out, lse = (result[0], result[1]) if isinstance(result, tuple) else (result, None)
        call.give(out, lse, layout=call.layout)
