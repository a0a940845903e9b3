"""What a compiler made of a test's calls, counted and stated for the record of scripts/python_record.py."""

import json

import torch._dynamo


def start():
    """Counts from here on."""
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()


def state(case, shapes, counter):
    """Prints and returns the graphs that `counter` saw, and the graph breaks and recompilations since start().

    case: the test, or a name; shapes: how many shapes, instances or steps went through the compiled code.
    """
    compilations = {str(metrics.compile_id) for metrics in torch._dynamo.utils.get_compilation_metrics()}
    counted = {
        "graphs": counter.frame_count,
        "graph_breaks": sum(torch._dynamo.utils.counters["graph_break"].values()),
        # A compilation is FRAME/N, with N from 0 for every frame.
        "recompiles": sum(not name.endswith("/0") for name in compilations),
    }
    name = case if isinstance(case, str) else ".".join(case.id().split(".")[-2:])
    print("counted: " + json.dumps({"case": name, "shapes": shapes, **counted}), flush=True)
    return tuple(counted.values())
