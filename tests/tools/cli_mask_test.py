"""fovea mask: rows of characters, JSON, pictures and refusals."""

import base64
import unittest

from cli_support import USAGE, CliTest

SMALL = ["mask", "radial", "--frames", 8, "--tokens-per-frame", 64, "--block", 64]


class MaskTest(CliTest):
    def test_text_is_a_row_per_query_block(self):
        text = self.succeed(*SMALL).out
        self.assertEqual(
            text,
            "#.......\n##......\n#.#.....\n#..#....\n#...#...\n#....#..\n#.....#.\n#......#\n",
        )
        self.assertEqual(self.succeed(*SMALL, "--format", "text").out, text)
        hunyuan = self.succeed(*SMALL, "--model", "hunyuan").out.splitlines()
        self.assertEqual(hunyuan, ["." * n + "#" + "." * (7 - n) for n in range(8)])

    def test_json_describes_the_mask(self):
        report = self.succeed(
            "mask", "radial", "--frames", 31, "--video-tokens", 27280, "--rule", "authors",
            "--format", "json",
        ).json()
        self.assertEqual(report["schema"], "fovea.mask/1")
        self.assertEqual(report["tokens_per_frame"], 880)
        self.assertEqual((report["rows"], report["columns"]), (214, 214))
        self.assertEqual((report["active"], report["hash"]), (14906, "96213a8496d1c387"))
        self.assertEqual(report["empty_rows"], sum(set(row) == {"."} for row in report["mask"]))
        self.assertEqual(sum(row.count("#") for row in report["mask"]), 14906)
        self.assertEqual(sum(e["rows"] * e["blocks"] for e in report["row_histogram"]), 14906)
        self.assertIsNone(report["window"])

    def test_local(self):
        report = self.succeed(
            "mask", "local", "--frames", 2, "--tokens-per-frame", 768, "--grid", "3,4",
            "--window", 3, "--format", "json",
        ).json()
        self.assertEqual((report["active"], report["rows"]), (70, 12))
        self.assertIsNone(report["rule"])

    def test_csv(self):
        lines = self.succeed(*SMALL, "--format", "csv").out.splitlines()
        self.assertEqual(lines[0].split(",")[:4], ["rows", "columns", "active", "density"])
        self.assertEqual(lines[1].split(",")[:4], ["8", "8", "15", "0.234375"])

    def test_picture(self):
        path = self.folder / "mask.svg"
        self.succeed(*SMALL, "--output", path)
        svg = path.read_text()
        self.assertIn("8 x 8 blocks, density 0.2344", svg)
        images = svg.split("data:image/png;base64,")[1:]
        self.assertEqual(len(images), 2)
        for image in images:
            png = base64.b64decode(image.split('"')[0])
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(png[16:24], (8).to_bytes(4, "big") * 2)

    def test_refusals(self):
        def refuse(message, *arguments):
            self.fail_with(USAGE, message, "mask", *arguments)

        size = ["--frames", 4, "--tokens-per-frame", 64]
        refuse("fovea mask needs a pattern (accepted: radial, local, topk)", *size)
        refuse("pattern 'radail' is not a pattern", "radail", *size)
        refuse("--frames is missing", "radial", "--tokens-per-frame", 64)
        refuse("give either --tokens-per-frame or --video-tokens", "radial", "--frames", 4)
        refuse("give either", "radial", *size, "--video-tokens", 256)
        refuse("--block 96 is not supported (accepted: 64, 128)", "radial", *size, "--block", 96)
        refuse("did you mean 'authors'?", "radial", *size, "--rule", "author")
        refuse("'mochi' is not a video model", "radial", *size, "--model", "mochi")
        refuse("decay_factor -1 is out of range", "radial", *size, "--decay=-1")
        refuse("--decay belongs to radial", "local", *size, "--decay", 1)
        refuse("--window belongs to local", "radial", *size, "--window", 1)
        refuse("--grid '3x4' is not H,W", "local", *size, "--grid", "3x4")
        refuse(
            "nearest: 32760 = 21 x 1560 or 32781 = 21 x 1561",
            "radial", "--frames", 21, "--video-tokens", 32761,
        )


class MaskFormatTest(CliTest):
    def test_a_wrong_format_lists_what_mask_accepts(self):
        for wrong in ("table", "svg"):
            outcome = self.fovea(*SMALL, "--format", wrong)
            self.assertEqual(outcome.code, USAGE)
            self.assertIn("(accepted: text, json, csv)", outcome.err)
        outcome = self.fovea("backends", "--format", "text")
        self.assertEqual(outcome.code, USAGE)
        self.assertIn("(accepted: table, json, csv)", outcome.err)


if __name__ == "__main__":
    unittest.main()
