#!/usr/bin/env python3
"""PyTorch or ONNX Runtime as a contender of compare.py: python_worker.py torch|onnxruntime.

Threads come from OMP_NUM_THREADS. PyTorch gets [B,H,S,D] views of [B,S,H,D] memory; ONNX Runtime's
MultiHeadAttention reads [B,S,H*D], each as its own models do."""

import json
import os
import sys
import time

import numpy

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def parse(problem):
    words = problem.split()
    shape = {"dtype": words[0], "sk": None, "b": 1, "h": 1}
    for word in words[1:]:
        if word == "lse=1":
            continue
        if word.startswith("sk="):
            shape["sk"] = int(word[3:])
        elif word[0] in "bhsd" and word[1:].isdigit():
            shape[word[0]] = int(word[1:])
        else:
            raise ValueError(f"cannot run {word}")
    shape["sk"] = shape["sk"] or shape["s"]
    return shape


def values(shape, seq, seed):
    return numpy.random.default_rng(seed).standard_normal(
        (shape["b"], seq, shape["h"], shape["d"]), dtype=numpy.float32)


def torch_call(shape):
    import torch
    torch.set_num_threads(THREADS)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[shape["dtype"]]
    q, k, v = (torch.from_numpy(values(shape, seq, seed)).to(dtype).transpose(1, 2)
               for seed, seq in enumerate((shape["s"], shape["sk"], shape["sk"])))

    def call():
        with torch.inference_mode():
            torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return call, torch.__version__


def onnxruntime_call(shape):
    import onnx
    import onnxruntime
    if shape["dtype"] != "f32":
        raise ValueError("MultiHeadAttention on the CPU is float32 only")
    width = shape["h"] * shape["d"]
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["out"],
                                 domain="com.microsoft", num_heads=shape["h"])
    graph = onnx.helper.make_graph(
        [node], "attention",
        [info("q", kind, [shape["b"], shape["s"], width]),
         info("k", kind, [shape["b"], shape["sk"], width]),
         info("v", kind, [shape["b"], shape["sk"], width])],
        [info("out", kind, [shape["b"], shape["s"], width])])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[
        onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    feeds = {name: values(shape, seq, seed).reshape(shape["b"], seq, width)
             for seed, (name, seq) in enumerate(
                 (("q", shape["s"]), ("k", shape["sk"]), ("v", shape["sk"])))}
    return (lambda: session.run(None, feeds)), onnxruntime.__version__


def main():
    make = {"torch": torch_call, "onnxruntime": onnxruntime_call}[sys.argv[1]]
    ready, call, version = None, None, None
    for line in sys.stdin:
        runs, problem = line.strip().split(" ", 1)
        try:
            if problem != ready:
                call, version = make(parse(problem))
                ready = problem
            times = []
            for _ in range(int(runs)):
                start = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - start))
            answer = {"ms": times, "version": version}
        except Exception as error:  # whatever the library says belongs into the table
            ready = None
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
