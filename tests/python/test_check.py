"""python3 -m fovea.check: the validation run through packages, with stand-ins for them on torch's CPU memory."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from test_torch_providers import Fakes, exact
from torch_case import fovea, torch

import fovea.check
from fovea.torch import providers

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
SEED = 20260817


class Vendors(Fakes):
    """aiter and mindiesd that compute exactly on [B,S,H,D]; `wrong` spoils what they return."""

    wrong = 0.0

    def documents(self, q, k, v, starts_q, starts_kv, scale):
        out, lse = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype), torch.zeros(q.shape[1], q.shape[0])
        for a, b, c, d in zip(starts_q, starts_q[1:], starts_kv, starts_kv[1:]):
            if b > a:
                part, part_lse = exact(q[None, a:b], k[None, c:d], v[None, c:d], scale)
                out[a:b], lse[:, a:b] = part[0].nan_to_num(), part_lse[0]
        return out, lse

    def aiter(self):
        def flash_attn_func(q, k, v, softmax_scale, causal, window_size, return_lse=False):
            self.calls.append("dense")
            out, lse = exact(q, k, v, softmax_scale, causal)
            return (out + self.wrong, lse) if return_lse else out + self.wrong

        def flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, max_q, max_k, softmax_scale, causal, window_size, return_lse=False
        ):
            self.calls.append("varlen")
            out, lse = self.documents(q, k, v, cu_q, cu_k, softmax_scale)
            return (out, lse) if return_lse else out

        self.module("aiter", "0.1.7", flash_attn_func=flash_attn_func, flash_attn_varlen_func=flash_attn_varlen_func)

    def mindiesd(self):
        def attention_forward(q, k, v, attn_mask, scale, opt_mode, op_type, layout):
            assert (opt_mode, layout) == ("manual", "BSND")
            self.calls.append(op_type)
            if attn_mask is None:
                return exact(q, k, v, scale)[0]
            a, b, c = (t.double().transpose(1, 2) for t in (q, k, v))
            scores = (a @ b.transpose(-1, -2) * scale).masked_fill(~attn_mask, float("-inf"))
            c = c.masked_fill(~attn_mask.any(2)[..., None], 0)  # hidden keys may hold NaN
            return (torch.softmax(scores, -1) @ c).transpose(1, 2).to(q.dtype)

        def attention_forward_varlen(q, k, v, cu_q, cu_k, max_seqlen_q, max_seqlen_k, softmax_scale):
            self.calls.append("varlen")
            return self.documents(q, k, v, cu_q, cu_k, softmax_scale)[0]

        self.module(
            "mindiesd", "3.1.0", attention_forward=attention_forward, attention_forward_varlen=attention_forward_varlen
        )


def kinds(record):
    """{path: kinds that ran there}"""
    found = {}
    for case in record["cases"]:
        if case["ran"]:
            found.setdefault(case["path"], set()).add(case["kind"])
    return found


class CheckTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        self.fakes = Vendors()
        folder = tempfile.TemporaryDirectory(prefix="fovea-check-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tearDown(self):
        providers.unbind()
        self.fakes.remove()

    def record(self, backend, package, platform, facts):
        self.assertEqual([row["state"] for row in providers.bind(package)], ["bound"])
        memory = fovea.check.TorchMemory(platform, facts, "cpu", "a double", "1.2")
        record = fovea.check.validate(backend, memory)
        failed = [case for case in record["cases"] if case["ran"] and not case["pass"]]
        self.assertEqual(failed, [])
        self.assertEqual(record["host"]["torch"], str(torch.__version__))
        return record

    def support(self, platform, facts, **spec):
        key = fovea.torch.resolve_key(
            {"default": {"backend": "FLASH_ATTN", **spec}}, platform=platform, facts=facts
        )
        q = torch.zeros(1, 64, 2, 64, dtype=torch.bfloat16)
        return fovea.torch.resolve(q, q, q, key=key)

    def test_aiter(self):
        self.fakes.aiter()
        record = self.record("FLASH_ATTN", "aiter", "rocm", "gfx=gfx942,aiter=0.1.7")
        self.assertEqual((record["provider"], record["device_class"]), ("package aiter 0.1.7", "gfx942"))
        self.assertEqual(
            kinds(record),
            {
                "rocm_dense": {"dense", "unequal lengths", "replay"},
                "rocm_masked_varlen": {"key padding", "unequal lengths", "replay"},
                "rocm_packed_varlen": {"packed", "replay"},
            },
        )
        self.assertEqual(set(self.fakes.calls), {"dense", "varlen"})
        # The tree admits it, a row for each path.
        sys.path.insert(0, str(SOURCE / "scripts"))
        import check_validation

        name, text = "FLASH_ATTN-aiter-gfx942.json", json.dumps(record)
        self.assertEqual(check_validation.file_name(record), name)
        self.assertEqual(check_validation.faults(name, text), [])
        self.assertEqual(len(check_validation.rows_of({"docs/validation/" + name: text})), 3)
        # The record that the run wrote is the one that is looked up.
        file = self.folder / "record.json"
        file.write_text(json.dumps(record))
        self.assertEqual(self.support("rocm", "gfx=gfx942,aiter=0.1.7")["support"], "unmigrated")
        providers.bind("aiter", records={"aiter": file})
        report = self.support("rocm", "gfx=gfx942,aiter=0.1.7")
        self.assertEqual(report["support"], "supported", report)
        for facts in ("gfx=gfx950,aiter=0.1.7",):
            report = self.support("rocm", facts)
            self.assertEqual(report["support"], "unmigrated")
            self.assertIn("python3 -m fovea.check --contract", report["reasons"][0]["remedy"])
        # What is no record, or does not count, is no record.
        with self.assertRaises(fovea.ArgumentError):
            providers.bind("aiter", records={"aiter": self.folder / "none.json"})
        record["cases"][0]["pass"] = False
        file.write_text(json.dumps(record))
        with self.assertRaisesRegex(fovea.ArgumentError, "a case that failed"):
            providers.bind("aiter", records={"aiter": file})

    def test_mindie(self):
        self.fakes.mindiesd()
        record = self.record("FLASH_ATTN", "mindiesd", "npu", "mindiesd=3.1.0")
        found = kinds(record)
        self.assertEqual(set(found), {"npu_dense", "npu_masked", "npu_packed_varlen"})
        self.assertEqual(found["npu_packed_varlen"], {"packed", "replay"})
        self.assertFalse(any(" lse=1" in case["problem"] for case in record["cases"] if case["ran"]))
        record = self.record("FLASH_ATTN", "mindiesd", "npu", "mindiesd=3.1.0,laser=1")
        self.assertEqual(kinds(record)["npu_prefix_kv_slice"], {"packed", "replay"})
        self.assertIn("ascend_laser_attention", self.fakes.calls)

    def test_fa4(self):
        self.fakes.cute()
        providers.bind("fa4")
        memory = fovea.check.TorchMemory("cuda", "sm=100,cuda=13.0,fa4=4.0.0b36", "cpu", "a double", "1.2")
        # Its packed kernel raises: those cases fail by name, and the others have run.
        record = fovea.check.validate("FLASH_ATTN_4", memory)
        self.assertFalse(record["pass"])
        broken = [case for case in record["cases"] if case["ran"] and not case["pass"]]
        self.assertTrue(broken and all("not in this build" in case["error"] for case in broken))

        def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal, return_lse=False):
            return self.fakes.documents(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale)

        sys.modules["flash_attn.cute"].flash_attn_varlen_func = flash_attn_varlen_func
        record = self.record("FLASH_ATTN_4", "fa4", "cuda", "sm=100,cuda=13.0,fa4=4.0.0b36")
        self.assertEqual(
            kinds(record),
            {"fa4_dense": {"dense", "unequal lengths", "replay"}, "unverified": {"packed", "replay"}},
        )
        self.assertTrue(record["pass"])
        # Nothing was captured on this memory, so on CUDA the record does not count.
        file = self.folder / "record.json"
        file.write_text(json.dumps(record))
        with self.assertRaisesRegex(fovea.ArgumentError, "not captured"):
            providers.bind("fa4", records={"fa4": file})

    def test_a_wrong_kernel_makes_no_record(self):
        self.fakes.aiter()
        self.fakes.wrong = 0.5
        providers.bind("aiter")
        memory = fovea.check.TorchMemory("rocm", "gfx=gfx942,aiter=0.1.7", "cpu", "a double", "1.2")
        record = fovea.check.validate("FLASH_ATTN", memory)
        self.assertFalse(record["pass"])
        self.assertTrue(any(case["ran"] and case["outside"] > 0 for case in record["cases"]))

    def test_packages_that_the_library_says_are_bound_here_are(self):
        for platform, facts, backend, package in (
            ("cuda", "sm=100,cuda=13.0,fa4=4.0", "FLASH_ATTN_4", "fa4"),
            ("rocm", "gfx=gfx942,aiter=0.1", "FLASH_ATTN", "aiter"),
            ("npu", "mindiesd=3.1", "FLASH_ATTN", "mindiesd"),
            ("cuda", "sm=89,cuda=13.0,sageattention=2.2", "SAGE_ATTN", "sageattention"),
            ("cuda", "sm=100,cuda=13.0,flashinfer=0.6,flashinfer_prefill=1", "FLASHINFER_ATTN", None),
        ):
            with self.subTest(backend=backend, platform=platform):
                (entry,) = fovea.explain(
                    backend=backend, platform=platform, facts=facts, problem="bf16 b1 h2 s64 d128"
                )["entries"]
                command = entry["promote"]
                self.assertTrue(command.startswith("python3 -m fovea.check --contract --backend"), command)
                self.assertEqual("--import" in command, package is None)
                if package is not None:
                    self.assertIn(backend, providers.PROVIDERS[package].backends)

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = fovea.check.main(list(map(str, arguments)))
            except SystemExit as error:
                code = error.code
        return code, out.getvalue(), err.getvalue()

    def test_the_program(self):
        file = self.folder / "record.json"
        self.fakes.aiter()
        # The CPU has no packages: every case is refused, and nothing is claimed.
        code, out, _ = self.run_main("--contract", "--backend", "FLASH_ATTN", "--device", "cpu", "--record", file)
        self.assertEqual(code, 3, out)
        self.assertIn("refused: ", out)
        code, out, _ = self.run_main(
            "--contract", "--backend", "FLASH_ATTN", "--device", "cpu", "--provider", "fovea", "--record", file
        )
        self.assertEqual(code, 0, out)
        self.assertTrue(json.loads(file.read_text())["pass"])
        for arguments, wanted, message in (
            (("--backend", "FLASH_ATTN"), 2, "--contract"),
            (("--contract", "--backend", "FLASH_ATTN", "--device", "tpu"), 2, "is not one of"),
            (("--contract", "--backend", "FLASH_ATTN", "--record", "none/f.json"), 2, "no such folder"),
            (("--contract", "--backend", "FLASH_ATTN", "--record", self.folder), 2, "is a folder"),
            (("--contract", "--backend", "FLASH_ATTN", "--options", "[1]"), 2, "is not a JSON map"),
            (("--contract", "--backend", "FLASH_ATTN", "--options", "{"), 2, "is not JSON"),
            (("--contract", "--backend", "TRTLLM_ATTN"), 3, "--import MODULE"),
            (("--contract", "--backend", "FA4", "--device", "cuda"), 3, "flash-attn-4"),
            (("--contract", "--backend", "NO_SUCH"), 2, "NO_SUCH"),
            (("--contract", "--backend", "SAGE_ATTN", "--import", "no_such_module"), 3, "no_such_module"),
            (("--contract", "--backend", "FLASH_ATTN", "--device", "rocm"), 3, "torch"),
            (("--contract", "--backend", "FLASH_ATTN", "--device", "npu"), 3, "torch_npu"),
            (("--contract", "--backend", "NO_SUCH", "--provider", "fovea", "--device", "cpu"), 2, "NO_SUCH"),
        ):
            with self.subTest(arguments=arguments):
                code, _, err = self.run_main(*arguments)
                self.assertEqual(code, wanted, err)
                self.assertIn(message, err)

    def test_a_provider_of_the_callers(self):
        class Own(providers.Provider):
            package, module, backends = "flashinfer", "flashinfer", ("FLASHINFER_ATTN",)

            def refusals(self, module, backend, problem):
                if problem.layout == 2 or problem.mask_kind or problem.has_kv_lengths or problem.lse:
                    yield ("mask", "call", "padding, documents or lse", "none", "leave them out")

            def run(self, module, call):
                out, _ = exact(*call.bshd(), call.scale)
                call.give(out, layout="bshd")

        self.fakes.module("flashinfer", "0.6.1")
        providers.register(Own())
        self.addCleanup(providers.PROVIDERS.pop, "flashinfer")
        record = self.record(
            "FLASHINFER_ATTN", "flashinfer", "cuda", "sm=100,cuda=13.0,flashinfer=0.6.1,flashinfer_prefill=1"
        )
        self.assertEqual(record["provider"], "package flashinfer 0.6.1")
        providers.unbind("flashinfer")
        with self.assertRaises(fovea.ArgumentError):
            providers.register(object())

    def test_as_a_module(self):
        done = subprocess.run(
            [sys.executable, "-m", "fovea.check", "--help"],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE / "python")},
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--contract", done.stdout)

    def test_without_torch(self):
        hidden = "import sys; sys.modules['torch'] = None; import fovea.check; sys.exit(fovea.check.main(sys.argv[1:]))"
        for arguments, wanted, message in (
            (("--help",), 0, "--contract"),
            (("--contract", "--backend", "FLASH_ATTN"), 3, "torch is not installed"),
        ):
            with self.subTest(arguments=arguments):
                done = subprocess.run(
                    [sys.executable, "-c", hidden, *arguments],
                    capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE / "python")},
                )  # fmt: skip
                self.assertEqual(done.returncode, wanted, done.stderr)
                self.assertIn(message, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
