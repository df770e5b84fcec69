"""Runs every script of scripts/ in its shortest form, and with wrong arguments. usage: check_scripts.py SOURCE_DIR BUILD_DIR CXX [CLASS]

scripts/test.sh runs this test, demo.sh runs in scripts/bare_root.sh, and both of these in continuous integration; here they only print their usage. The tables have
tests of their own, in tests/bench_table, and so has gpu_check.sh, in tests/cuda.
"""

import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, CXX = sys.argv[1:4]
del sys.argv[1:4]
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)
import bench_table  # noqa: E402
import slim_fatbin  # noqa: E402

MODULES = ["lib.sh", "bench_plot.py"]  # others include them
PROGRAMS = sorted(glob.glob(os.path.join(BUILD, "bench", "*_bench")))
HOST_PROGRAMS = [program for program in PROGRAMS if not os.path.basename(program).startswith("cuda_")]  # the others need a device


def run(script, *arguments, **settings):
    command = ["bash"] if script.endswith(".sh") else [sys.executable, "-B"]
    return subprocess.run([*command, os.path.join(SCRIPTS, script), *arguments], capture_output=True, text=True, check=False, timeout=200,
                          env={**os.environ, "CXX": CXX, **settings})


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def passes(self, outcome, *texts):
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        for text in texts:
            self.assertIn(text, outcome.stdout)

    def refuses(self, status, text, script, *arguments, **settings):
        outcome = run(script, *arguments, **settings)
        self.assertEqual((outcome.returncode, text in outcome.stderr), (status, True), f"{script} {arguments}: {outcome.returncode} {outcome.stderr}")


class Scripts(WithFolder):
    def test_every_script_prints_its_usage_and_refuses_other_options(self):
        for path in sorted(glob.glob(os.path.join(SCRIPTS, "*.*"))):
            script = os.path.basename(path)
            if script in MODULES:
                continue
            with self.subTest(script):
                outcome = run(script, "--help")
                self.passes(outcome, "usage: ", script)
                self.assertEqual(outcome.stderr, "")
                self.refuses(2, "unknown option '--other'" if script.endswith(".sh") else "usage: ", script, "--other")

    def test_a_missing_value_is_named(self):
        for option in ("--phase", "--only", "--call-seconds", "--limit", "--long-limit", "--results", "--archive-limit", "--catch2", "--benchmark", "--eigen", "--cli11", "--nccl", "--arch", "--build"):
            self.refuses(2, f"{option} needs a value", "gpu_check.sh", "--no-sanitizer", option)
        for option in ("--filter", "--repetitions"):
            self.refuses(2, f"{option} needs a value", "bench.sh", option)
        self.refuses(2, "--limit soon: a number of seconds", "gpu_check.sh", "--limit", "soon")
        self.refuses(2, "--repetitions 0: a number above 0", "bench.sh", "--repetitions", "0")

    def test_device_tests_that_were_not_built(self):
        self.refuses(3, "run --phase build first", "gpu_check.sh", "--phase", "run", "--limit", "1", "--build", os.path.relpath(self.folder, ROOT))

    def test_a_library_keeps_the_code_of_one_architecture(self):
        def entry(kind, architecture, code):
            return struct.pack("<HHIQQII", kind, 0x101, 32, len(code), 0, 0, architecture) + code

        def library(entries, text=b"code80__"):
            code = b"".join(entries)
            binary = b"\0" * 8 + struct.pack("<IHHQ", slim_fatbin.MAGIC, 1, 16, len(code)) + code
            names = b"\0.text\0.nv_fatbin\0.names\0"
            contents = [(b"", 0), (text, names.index(b".text")), (binary, names.index(b".nv_fatbin")), (names, names.index(b".names"))]
            data, headers = b"\x7fELF\x02\x01".ljust(64, b"\0"), b""
            for content, name in contents:
                headers += struct.pack("<IIQQQQ", name, 1, 0, 0, len(data), len(content)).ljust(64, b"\0")
                data += content
            return data[:0x28] + struct.pack("<Q", len(data)) + data[0x30:0x3A] + struct.pack("<HHH", 64, len(contents), 3) + data[0x40:] + headers

        full = [entry(1, 90, b"ptx_"), entry(2, 80, b"code80__"), entry(2, 86, b"code86__"), entry(2, 90, b"code90__")]
        file, out = os.path.join(self.folder, "library"), os.path.join(self.folder, "out")
        with open(file, "wb") as stream:
            stream.write(library(full))
        for architecture, kept in (("sm_90a", 90), ("sm_86", 86), ("sm_89", 86)):
            self.passes(run("slim_fatbin.py", file, out, architecture), f"sm_{kept} of sm_80, sm_86, sm_90 stays")
            with open(out, "rb") as stream:
                found = stream.read()
            blanked = [one if f"code{kept}__".encode() in one else one[:32] + bytes(len(one) - 32) for one in full]
            self.assertEqual(found, library(blanked))
        self.refuses(1, "it holds no code that runs on sm_100, but for sm_80, sm_86, sm_90", "slim_fatbin.py", file, out, "sm_100")
        with open(file, "wb") as stream:
            stream.write(library(full)[:200])
        self.refuses(1, "error: ", "slim_fatbin.py", file, out, "sm_90")
        self.refuses(2, "usage: ", "slim_fatbin.py", file, out, "native")

    def test_no_benchmark_of_a_device_times_constant_data(self):
        def text_of(file):
            with open(os.path.join(ROOT, "bench/cuda", file), encoding="utf-8") as stream:
                return stream.read()

        def unfilled(text, names, begin):
            return [name for name in names if "fill_normal(" not in re.search(rf"(?ms)^{begin} {name}\b.*?^}}", text)[0]]

        passes = text_of("passes.cuh")
        found = re.findall(r"(?m)^class (\w+Pass)\b", passes)
        self.assertEqual((len(found), unfilled(passes, found, "class")), (6, []))
        self.assertEqual(unfilled(passes.replace("fill_normal(", "zeros("), found, "class"), found)  # the check finds one
        for file, least in (("kernels_bench.cu", 17), ("step_bench.cu", 2)):
            text = text_of(file)
            timed = re.findall(r'bench::add\("[^"]+",\s*(?:\[\]\([^)]*\)\s*\{\s*)?(\w+)', text)
            self.assertGreaterEqual(len(timed), least)
            self.assertEqual(unfilled(text, set(timed) - {"pass", "parts", "step"}, "void"), [])  # the first two time passes
        self.assertIn("fill_normal(", text_of("training.cuh"))  # of steps
        self.assertIn("if (is_constant(input))", re.search(r"(?s)void time_on_device.*?state.SetIterationTime", text_of("device_time.cuh"))[0])

    def test_the_peer_in_pytorch_has_the_data_of_the_benchmarks_of_a_device(self):
        deviations = []
        for file, pattern in (("bench/cuda/device_array.cuh", r"(\w+_deviation) = ([0-9.e-]+)F;"), ("bench/peers/torch_adamw.py", r"(?m)^(\w+_DEVIATION) = ([0-9.e-]+)$")):
            with open(os.path.join(ROOT, file), encoding="utf-8") as stream:
                deviations.append({name.lower(): float(value) for name, value in re.findall(pattern, stream.read())})
        self.assertEqual(deviations[0], {"gradient_deviation": 0.001, "parameter_deviation": 0.02})
        self.assertEqual(*deviations)

    def test_a_bare_root_without_root_rights_is_skipped_with_the_reason(self):
        with open(os.path.join(self.folder, "id"), "w", encoding="utf-8") as stream:
            stream.write("#!/bin/sh\necho 1000\n")
        os.chmod(stream.name, 0o755)
        outcome = run("bare_root.sh", PATH=self.folder + os.pathsep + os.environ["PATH"])
        self.assertEqual((outcome.returncode, outcome.stdout), (77, "skipped: a root folder of its own needs root rights\n"), outcome.stderr)

    def test_compile_times(self):
        self.passes(run("include_cost.sh", "zero/core/version.hpp", ZERO_REPETITIONS="1"), "(empty unit)", "zero/core/version.hpp")
        self.passes(run("compile_time.sh", ZERO_REPETITIONS="1", ZERO_FLAGS="-fsyntax-only"), "stage 2, float, defaults", "(the include alone)")

    def test_clang_tidy(self):
        if not shutil.which(os.environ.get("CLANG_TIDY", "clang-tidy")):
            self.skipTest("no clang-tidy")
        self.passes(run("tidy.sh", "tests/headers/link_main.cpp"), "== tests/headers/link_main.cpp")

    def test_the_plot_of_a_timeline(self):
        trace, plot = os.path.join(self.folder, "trace.json"), os.path.join(self.folder, "plot.svg")
        with open(trace, "w", encoding="utf-8") as stream:
            json.dump({"traceEvents": [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "queue"}},
                                       {"ph": "X", "pid": 0, "tid": 1, "ts": 0, "dur": 50, "cat": "update", "name": "update of unit 0"}]}, stream)
        self.passes(run("timeline_plot.py", trace, plot))
        with open(plot, encoding="utf-8") as stream:
            self.assertIn("update of unit 0: 0.050 ms", stream.read())


class Benchmarks(WithFolder):
    @unittest.skipUnless(HOST_PROGRAMS, "no benchmarks of hosts were built")
    def test_one_benchmark_with_the_twin_that_the_filter_leaves_out(self):
        settings = {"ZERO_BENCH_BUILD": BUILD, "ZERO_BUILD_ROOT": self.folder}
        outcome = run("bench.sh", "--quick", "--filter", "^norm/float32/zero/65536/", **settings)
        self.passes(outcome, "| norm float32 |    65536 |")
        self.assertNotIn("Not in the table", outcome.stdout)
        self.refuses(1, "the filter 'no/such/benchmark' matches none", "bench.sh", "--filter", "no/such/benchmark", **settings)

    @unittest.skipUnless(HOST_PROGRAMS, "no benchmarks of hosts were built")
    def test_one_small_benchmark_of_every_program(self):
        chosen, large = [], []
        for program in HOST_PROGRAMS:
            names = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True, check=True).stdout.split()
            rows = [row for row in map(bench_table.Row, names) if row.who != "twin" and row.operation != "scaling" and row.elements < 10**7]
            if rows:
                chosen.append(min(rows, key=lambda row: row.elements))
            else:
                large.append(os.path.basename(program))
        self.assertLessEqual(set(large), {"checkpoint_checkpoint_bench", "stage_scaling_bench", "tier_offload_bench"})
        outcome = run("bench.sh", "--quick", "--repetitions", "1", "--filter", f"^({'|'.join(row.name for row in chosen)})$", ZERO_BENCH_BUILD=BUILD, ZERO_BUILD_ROOT=self.folder)
        self.passes(outcome, *(f"| {row.title()} " for row in chosen))
        self.assertNotIn("Not in the table", outcome.stdout)

    @unittest.skipUnless(PROGRAMS, "no benchmarks were built")
    def test_every_benchmark_has_a_place_in_the_table(self):
        rows = []
        for program in PROGRAMS:
            names = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True, check=True).stdout.split()
            self.assertNotEqual(names, [], program)
            rows += [bench_table.Row(name) for name in names]
        self.assertEqual([(row.name, reason) for row, reason in bench_table.compare(rows)[1]], [])


if __name__ == "__main__":
    unittest.main()
