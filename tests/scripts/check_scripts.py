"""Runs every script of scripts/ in its shortest form, and with wrong arguments. usage: check_scripts.py SOURCE_DIR BUILD_DIR CXX

scripts/test.sh runs this test, demo.sh runs in scripts/bare_root.sh, and both of these in continuous integration; here they only print their usage. The tables have
tests of their own, in tests/bench_table, and so has gpu_check.sh, in tests/cuda.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, CXX = sys.argv[1:4]
del sys.argv[1:4]
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)
import bench_table  # noqa: E402

MODULES = ["lib.sh", "bench_plot.py"]  # others include them
PROGRAMS = sorted(glob.glob(os.path.join(BUILD, "bench", "*_bench")))


def run(script, *arguments, **settings):
    command = ["bash"] if script.endswith(".sh") else [sys.executable, "-B"]
    return subprocess.run([*command, os.path.join(SCRIPTS, script), *arguments], capture_output=True, text=True, check=False, timeout=200,
                          env={**os.environ, "CXX": CXX, **settings})


class Scripts(unittest.TestCase):
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
        for option in ("--phase", "--deadline", "--limit", "--catch2", "--benchmark", "--eigen", "--cli11", "--nccl", "--arch", "--build"):
            self.refuses(2, f"{option} needs a value", "gpu_check.sh", "--no-sanitizer", option)
        for option in ("--filter", "--repetitions"):
            self.refuses(2, f"{option} needs a value", "bench.sh", option)
        self.refuses(2, "--limit soon: a number of seconds", "gpu_check.sh", "--limit", "soon")
        self.refuses(2, "--repetitions 0: a number above 0", "bench.sh", "--repetitions", "0")

    def test_device_tests_that_were_not_built(self):
        self.refuses(3, "run --phase build first", "gpu_check.sh", "--phase", "run", "--limit", "1", "--build", os.path.relpath(self.folder, ROOT))

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

    @unittest.skipUnless(PROGRAMS, "no benchmarks were built")
    def test_one_benchmark_with_the_twin_that_the_filter_leaves_out(self):
        settings = {"ZERO_BENCH_BUILD": BUILD, "ZERO_BUILD_ROOT": self.folder}
        outcome = run("bench.sh", "--quick", "--filter", "^norm/float32/zero/65536/", **settings)
        self.passes(outcome, "| norm float32 |    65536 |")
        self.assertNotIn("Not in the table", outcome.stdout)
        self.refuses(1, "the filter 'no/such/benchmark' matches none", "bench.sh", "--filter", "no/such/benchmark", **settings)

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
