"""SAGE_ATTN and its variants by the package sageattention.

Version 1 (the one on PyPI) has sageattn alone, in Triton. It subtracts the mean of the keys in place, which a caller's
tensor must not see: the keys are centred here, in memory of their own, and the package is told to leave them. It reads
keys in blocks of 64 and does not hide what is behind the last one: lengths that end inside a block are refused.
"""

from .provider import Provider, causal_is_square, equal_head_sizes, need, no_masks, parameters, serves

_FUNCTIONS = {
    "SAGE_ATTN": "sageattn",
    "SAGE_ATTN_2_8_8": "sageattn_qk_int8_pv_fp8_cuda",
    "SAGE_ATTN_2_8_16": "sageattn_qk_int8_pv_fp16_cuda",
    "SAGE_ATTN_2_8_8_SM90": "sageattn_qk_int8_pv_fp8_cuda_sm90",
}
_LARGEST_HEAD = 128
_HEADS_OF_VERSION_1 = (64, 96, 128)
_BLOCK_KV_OF_VERSION_1 = 64


def _returns_lse(function):
    """Version 1 swallows return_lse among its keywords and returns out alone."""
    return "return_lse" in parameters(function)


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
        name = _FUNCTIONS.get(backend)
        function = None if name is None else getattr(module, name, None)
        if name is not None and function is None:
            yield ("package", "sageattention", f"no {name}", f"version 2 with {name}", self.install)
        yield from no_masks(problem, "choose FLASH_ATTN or TORCH_SDPA")
        yield from equal_head_sizes(problem)
        yield from causal_is_square(problem)
        if function is not None and not _returns_lse(function):
            yield from self._refusals_of_version_1(problem)
        elif problem.head_dim > _LARGEST_HEAD:
            yield ("head_dim", "head_dim", str(problem.head_dim), f"up to {_LARGEST_HEAD}", "choose FLASH_ATTN")

    def _refusals_of_version_1(self, problem):
        if problem.lse:
            yield ("lse", "lse", "asked for", "not returned by version 1", self.install)
        if problem.head_dim not in _HEADS_OF_VERSION_1:
            accepted = ", ".join(map(str, _HEADS_OF_VERSION_1))
            yield ("head_dim", "head_dim", str(problem.head_dim), accepted, "choose FLASH_ATTN")
        # With the diagonal it reads scales of whole blocks of queries, which are twice as long.
        block = _BLOCK_KV_OF_VERSION_1 * (2 if problem.causal else 1)
        if problem.seq_kv % block:
            accepted = f"multiples of {block} in version 1"
            yield ("seq_limit", "seq_kv", str(problem.seq_kv), accepted, "choose FLASH_ATTN, or install version 2")

    def run(self, module, call):
        function = getattr(module, _FUNCTIONS[call.backend])
        k = call.k
        arguments = {
            "tensor_layout": "HND" if call.layout == "bhsd" else "NHD",
            "is_causal": call.causal,
            "sm_scale": call.scale,
        }
        if not _returns_lse(function):
            k = k - k.mean(dim=2 if call.layout == "bhsd" else 1, keepdim=True)
            arguments["smooth_k"] = False
        elif call.lse is not None:
            arguments["return_lse"] = True
        result = function(call.q, k, call.v, **arguments)
        out, lse = (result[0], result[1]) if isinstance(result, tuple) else (result, None)
        call.give(out, lse, layout=call.layout)
