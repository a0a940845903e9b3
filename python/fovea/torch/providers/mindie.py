"""FLASH_ATTN on Ascend NPUs by the package mindiesd."""

from .provider import Provider, equal_head_sizes, need, serves


class MindIE(Provider):
    package = "mindiesd"
    module = "mindiesd"
    install = "pip install mindiesd"
    distributions = ("mindiesd", "mindie-sd")
    backends = ("FLASH_ATTN",)

    def check(self, module):
        need(module, "attention_forward")

    def refusals(self, module, backend, problem):
        yield from serves(self, backend)
        yield from equal_head_sizes(problem)
        if problem.lse:
            yield ("lse", "lse", "asked for", "not returned", "leave it out")
        if problem.causal or problem.window_left != -1 or problem.window_right != -1:
            yield ("causal", "causal or window", "given", "none", "choose TORCH_SDPA")
        if problem.heads_q != problem.heads_kv:
            got = f"{problem.heads_q}/{problem.heads_kv}"
            yield ("heads", "heads_q/heads_kv", got, "equal", "repeat the heads of k and v")
        if problem.mask_kind and (problem.mask_dtype.code, problem.mask_dtype.bits) != (6, 8):
            yield ("mask_dtype", "mask", "not boolean", "bool", "convert the mask to bool")
        if problem.has_kv_lengths:
            yield ("kv_lengths", "kv_lengths", "given", "a mask", "pass a boolean mask of keys")

    def run(self, module, call):
        if call.path == "npu_packed_varlen":
            out = module.attention_forward_varlen(
                call.q, call.k, call.v, call.cu_seqlens_q, call.cu_seqlens_kv,
                max_seqlen_q=call.problem.max_document_q, max_seqlen_k=call.problem.max_document_kv,
                softmax_scale=call.scale,
            )  # fmt: skip
            call.give(out, layout="packed")
            return
        if call.path == "npu_prefix_kv_slice":
            # One document in front of its padding, whose rows are 0.
            rows = call.valid_queries
            out = _forward(module, call, *(t.unsqueeze(0) for t in (call.q[:rows], call.k, call.v)))
            call.out.zero_()
            call.out[:rows].copy_(out.squeeze(0))
            return
        call.give(_forward(module, call, *call.bshd()), layout="bshd")


def _forward(module, call, q, k, v):
    kind = "ascend_laser_attention" if call.path == "npu_prefix_kv_slice" else "fused_attn_score"
    return module.attention_forward(
        q, k, v, attn_mask=call.mask, scale=call.scale, opt_mode="manual", op_type=kind, layout="BSND"
    )
