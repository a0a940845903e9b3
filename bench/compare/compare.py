#!/usr/bin/env python3
"""Fovea against other libraries, interleaved in one run.

    bench/compare/compare.py --contender 'fovea=build/bench/fovea_worker' \\
        --contender 'torch=python3 bench/compare/python_worker.py torch' \\
        --problem 'f32 b1 h2 s4096 d128' [--threads 1] [--rounds 5] [--json F]

Each contender is a command that keeps running and answers lines "<runs> <problem string>" with JSON, so
every library is loaded once and in a process of its own. Per problem each contender warms up for at least
a fifth of a second; then, in every round, each runs in turn, the others stopped: threads that some libraries
leave spinning after a call would take the processor from the next one. The first run of a turn, with cold caches
and sleeping threads, does not count. The figure is the median over all others. A
contender that cannot run a problem stands in the table with its own words. The first contender is the one
that the others are compared with."""

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys

import re

WARM_UP_MS = 200
ROUND_MS = 60


def flops(problem):
    words = dict(re.findall(r"\b(sk=|[bhsd])(\d+)", problem))
    seq_kv = int(words.get("sk=", words["s"]))
    return 4 * int(words.get("b", 1)) * int(words["h"]) * int(words["s"]) * seq_kv * int(words["d"])


class Contender:
    def __init__(self, text, threads):
        self.name, command = text.split("=", 1)
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), FOVEA_NUM_THREADS=str(threads),
                           OPENBLAS_NUM_THREADS=str(threads))
        words = shlex.split(command)
        while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
            key, value = words.pop(0).split("=", 1)
            environment[key] = value
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment, start_new_session=True)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def ask(self, runs, problem):
        self.signal(signal.SIGCONT)
        try:
            self.process.stdin.write(f"{runs} {problem}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            return json.loads(line) if line else {"error": "the program ended"}
        except BrokenPipeError:
            return {"error": "the program ended"}
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        finally:
            self.signal(signal.SIGSTOP)

    def close(self):
        self.signal(signal.SIGCONT)
        try:
            self.process.stdin.close()
        except BrokenPipeError:  # it ended before the last question
            pass
        self.process.wait()

    def warm_up(self, problem):
        """Milliseconds of the last run, or the error."""
        spent, took = 0.0, 0.0
        while spent < WARM_UP_MS:
            answer = self.ask(1, problem)
            if "error" in answer:
                return answer["error"]
            took = answer["ms"][0]
            spent += max(took, 0.01)
        return took


def measure(contenders, problem, rounds):
    runs, times, errors = {}, {}, {}
    for contender in contenders:
        took = contender.warm_up(problem)
        if isinstance(took, str):
            errors[contender.name] = took
        else:
            runs[contender.name] = max(1, round(ROUND_MS / max(took, 0.01)))
            times[contender.name] = []
    for _ in range(rounds):
        for contender in contenders:
            if contender.name in times:
                answer = contender.ask(1 + runs[contender.name], problem)
                if "error" in answer:
                    errors[contender.name] = answer["error"]
                    del times[contender.name]
                else:
                    times[contender.name] += answer["ms"][1:]
    return [{"problem": problem, "contender": contender.name, "error": errors.get(contender.name),
             "median_ms": statistics.median(times[contender.name]) if times.get(contender.name) else None}
            for contender in contenders]


def table(rows):
    lines = []
    for row in rows:
        if row["median_ms"] is None:
            lines.append(f"{row['problem']:<28} {row['contender']:<14} {row['error'][:60]}")
        else:
            lines.append(f"{row['problem']:<28} {row['contender']:<14} {row['median_ms']:9.3f} ms "
                         f"{row['gflops']:8.1f} GFLOP/s  {row['ratio']:5.2f} x")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--contender", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--problem", action="append", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="F")
    options = parser.parse_args()
    contenders, rows = [], []
    try:
        for text in options.contender:
            try:
                contenders.append(Contender(text, options.threads))
            except OSError as error:
                parser.error(f"--contender {text}: {error}")
        for problem in options.problem:
            measured = measure(contenders, problem, options.rounds)
            first = measured[0]["median_ms"]
            for row in measured:
                if row["median_ms"] is not None:
                    row["gflops"] = flops(problem) / row["median_ms"] / 1e6
                    row["ratio"] = row["median_ms"] / first if first else float("nan")
            rows += measured
            print(table(measured), flush=True)
    finally:
        for contender in contenders:
            contender.close()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"threads": options.threads, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
