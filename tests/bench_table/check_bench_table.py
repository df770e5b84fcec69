"""Tests scripts/bench_table.py and scripts/bench_scaling.py on recorded results. usage: check_bench_table.py SOURCE_DIR"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = sys.argv.pop(1)
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import bench_table  # noqa: E402

HERE = os.path.join(ROOT, "tests", "bench_table")
RESULTS = ["later.json", "first.json"]  # in any order; the later run of a benchmark counts


def run(files, *options, script="bench_table.py"):
    paths = [os.path.join(HERE, file) for file in files]
    return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "scripts", script), *paths, *options], capture_output=True, text=True, check=False)


def content(path):
    with open(path, encoding="utf-8") as stream:
        return stream.read()


class BenchTable(unittest.TestCase):
    def test_medians_ratios_and_goals(self):
        outcome = run(RESULTS)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(outcome.stdout, content(os.path.join(HERE, "expected.md")))
        self.assertIn("this machine lacks the instruction set", outcome.stderr)

    def test_values_worked_out_by_hand(self):
        rows = {line.split("|")[1].strip() + " " + line.split("|")[2].strip(): [cell.strip() for cell in line.split("|")[3:-1]]
                for line in run(RESULTS).stdout.splitlines() if line.startswith("|")}
        # Medians of 3.0, 3.3, 2.9 and 5, 4, 1 GB/s; the twin's times 100, 125, 500: quarters at 112.5 and 312.5.
        self.assertEqual(rows["norm float32 124439808"], ["166 ms", "3.0", "4.0", "0.75", "160%", "0.80, missed"])
        self.assertEqual(rows["norm float32, 2 threads 124439808"], ["50 ms", "8.0", "10.0", "0.80", "0%", "0.80, met"])
        self.assertEqual(rows["reduce scatter of 1 KB W = 2 256"][3], "1.50")  # 30 us and 20 us
        self.assertEqual(rows["update two states adamw 1024"][3], "0.80")   # of the later run; the earlier has 0.20

    def test_a_device_is_compared_with_its_copy_and_a_step_with_its_passes(self):
        outcome = run(["device.json"])
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in outcome.stdout.splitlines() if line.startswith("|")]
        rows = {(line[0], line[1]): (line[5], line[7]) for line in lines[2:]}
        self.assertEqual(rows, {
            ("copy cuda twin", "64"): ("1.00", ""), ("copy cuda twin", "124439808"): ("1.00", ""),
            ("norm cuda float32", "124439808"): ("0.96", "0.95, met"), ("norm cuda float32 cub", "124439808"): ("0.50", ""),
            ("norm cuda float32 odd", "124439808"): ("0.50", ""), ("update cuda two states adamw", "64"): ("0.50", ""),
            ("update cuda two states adamw", "124439808"): ("0.90", "0.95, missed"), ("step cuda stage 2", "124439808"): ("0.95", "0.90, met")})
        self.assertIn("\nHost and memory:\n\n- step cuda stage 2, 124439808 elements: 80 us of the host in a step (goal: below 100, met); "
                      "12.5 us of the host for each collective (goal: below 10, missed); 2500.0 MB planned, 2501.0 MB taken from the pool, which holds 2600.0 MB\n",
                      outcome.stdout)
        self.assertIn("- sum/cuda_float32_2_ranks/zero/128/min_time:0.100/manual_time, 100 us: no result of its twin\n", outcome.stdout)

    def test_what_has_no_place_is_listed_below_the_table(self):
        outcome = run([*RESULTS, "alone.json", "misnamed.json"])
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(outcome.stdout.split("\n", 1)[1], content(os.path.join(HERE, "expected.md")).split("\n", 1)[1] + "\nNot in the table:\n\n"
                         "- norm/float32/zero/64/real_time, 1 ms: no result of its twin\n- norm/float32, 1 ms: its name is not operation/case/who/elements\n")
        self.assertEqual(run([]).returncode, 2)

    def test_only_the_table_of_the_page_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as stream:
                stream.write("before\n<!-- table -->\nold\n<!-- end of table -->\nafter\n")
            self.assertEqual(run(RESULTS, "--page", page).returncode, 0)
            table = content(os.path.join(HERE, "expected.md"))
            self.assertEqual(content(page), f"before\n<!-- table -->\n{table}<!-- end of table -->\nafter\n")
            with open(page, "w", encoding="utf-8") as stream:
                stream.write("no place for a table\n")
            self.assertEqual(run(RESULTS, "--page", page).returncode, 1)
            self.assertEqual(content(page), "no place for a table\n")

    def test_the_page_gets_the_rows_that_have_a_goal(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as stream:
                stream.write("before\n<!-- goals -->\nold\n<!-- end of goals -->\nafter\n")
            self.assertEqual(run(RESULTS, "--goals", page).returncode, 0)
            lines = content(page).splitlines()
            self.assertEqual(lines[:2] + lines[-2:], ["before", "<!-- goals -->", "<!-- end of goals -->", "after"])
            self.assertEqual(lines[2], content(os.path.join(HERE, "expected.md")).splitlines()[0])
            self.assertEqual(lines[4:-2], ["| ratio | goal | 1 thread | 2 threads |", "|---|---:|---:|---:|", "| norm float32 | 0.80 | **0.75** | 0.80 |", "",
                                           "| ratio | goal | W = 2 |", "|---|---:|---:|", "| reduce scatter of 1 KB | 1.00 | 1.50 |"])

    def test_the_plot_shows_the_ratios(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = os.path.join(folder, "plot.svg")
            self.assertEqual(run(RESULTS, "--svg", plot).returncode, 0)
            lines = [one.get("points") for one in xml.etree.ElementTree.parse(plot).iter() if one.tag.endswith("polyline")]
            # From 0.5 at the smallest size to 0.75 at the largest; the axis ends at 1.5, 190 units above its foot at 224.
            self.assertEqual(lines, ["62.0,160.7 312.0,129.0"])

    def test_the_pages_and_the_plot_show_the_numbers_of_one_table(self):
        docs = os.path.join(ROOT, "docs")
        page, goals = content(os.path.join(docs, "data", "benchmarks.txt")), content(os.path.join(docs, "benchmarks.md"))
        ratio = re.search(r"\| step float leases plain stage 1 +\| 124439808 \|[^|]+\|[^|]+\|[^|]+\| +(\d\.\d\d) \|", page)
        with tempfile.TemporaryDirectory() as folder:
            for changed, is_same in ((page, True), (page[:ratio.start(1)] + "0.99" + page[ratio.end(1):], False)):
                file, plot, written = (os.path.join(folder, name) for name in ("page.txt", "plot.svg", "written.md"))
                for name, text in ((file, changed), (written, goals)):
                    with open(name, "w", encoding="utf-8") as stream:
                        stream.write(text)
                self.assertEqual(run([file], "--svg", plot, "--goals", written).returncode, 0)
                self.assertEqual(content(written) == goals, is_same, "docs/benchmarks.md; write it by: scripts/bench_table.py docs/data/benchmarks.txt --goals docs/benchmarks.md")
                self.assertEqual(content(plot) == content(os.path.join(docs, "benchmarks.svg")), is_same,
                                 "docs/benchmarks.svg; write it by: scripts/bench_table.py docs/data/benchmarks.txt --svg docs/benchmarks.svg")

    def test_a_page_gives_the_plot_and_the_goals_of_its_results(self):
        with tempfile.TemporaryDirectory() as folder:
            page, *outputs = (os.path.join(folder, name) for name in ("page.txt", "from_results.md", "from_page.md"))
            for name, marks in ((page, bench_table.MARKS), *((output, bench_table.GOAL_MARKS) for output in outputs)):
                with open(name, "w", encoding="utf-8") as stream:
                    stream.write("\n".join(marks) + "\n")
            plots = [output + ".svg" for output in outputs]
            self.assertEqual(run(RESULTS, "--page", page, "--goals", outputs[0]).returncode, 0)
            self.assertEqual(run(RESULTS, "--svg", plots[0]).returncode, 0)
            self.assertEqual(run([page], "--svg", plots[1], "--goals", outputs[1]).returncode, 0)
            self.assertEqual(content(plots[0]), content(plots[1]))
            self.assertEqual(content(outputs[0]), content(outputs[1]))

    def test_steps_with_states_in_files_have_goals(self):
        names = ["offload_step/states", "offload_step/parameters", "offload_checksums/states", "offload_depth/4", "offload_ratio/half"]
        self.assertEqual([bench_table.goal_of(bench_table.Row(f"{name}/zero/124439808/manual_time")) for name in names], [0.9, 0.9, 0.95, 1.15, 1.54])

    def test_scaling(self):
        outcome = run(["plan.txt", "scaling.json"], script="bench_scaling.py")
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual([[cell.strip() for cell in line.split("|")[1:-1]] for line in outcome.stdout.splitlines()[2:]],
                         [["1", "5 ms", "0.80", "0.02 GB"], ["2", "3 ms", "0.83", "0.012 GB"], ["4", "2 ms", "0.75", "0.008 GB"]])
        with tempfile.TemporaryDirectory() as folder:
            plot = os.path.join(folder, "plot.svg")
            self.assertEqual(run(["plan.txt", "scaling.json"], "--svg", plot, script="bench_scaling.py").returncode, 0)
            lines = [one.get("points") for one in xml.etree.ElementTree.parse(plot).iter() if one.tag.endswith("polyline")]
            # 5, 3 and 2 ns lie on 1 + 4 / W: from 1 to 5 of 6.
            self.assertIn("62.0,192.3 312.0,65.7", lines)

    def test_memory_off_the_plan_is_an_error(self):
        outcome = run(["plan.txt", "scaling_off_plan.json"], script="bench_scaling.py")
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("20000000 bytes were allocated, 1 planned", outcome.stderr)


if __name__ == "__main__":
    unittest.main()
