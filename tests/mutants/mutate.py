"""Changes one token of a header at a time and tells which changes no test notices.

usage: mutate.py [options] FOLDER|HEADER|HEADER:LINE ...      for instance: mutate.py --count 20 include/zero/layout include/zero/comm/loopback.hpp

Each mutant is one change at a random place: == <-> !=, < <-> <=, > <-> >=, + <-> -, && <-> ||, true <-> false, a constant plus or minus 1, a removed '!', a removed call.
It is made in a copy of include/, and the test files of its header are compiled against that copy, header-only and without optimisation, and run. A mutant is
    killed            a test fails, crashes, or exceeds the time limit;
    does not compile  the type system or a static_assert refused it;
    survived          every test file that was tried passes: write an assertion that fails, or know why the change is equivalent.
The tests of a header are the first `--most` whose translation unit contains it, of its files in TESTS, those with its stem in their name, those that include
it, and those of its folder in GENERAL. The run is not part of the test suite: it takes 5 to 60 s a mutant. Linux, g++ or clang++, Catch2 2, libxxhash.
"""

import argparse
import collections
import difflib
import functools
import glob
import itertools
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join("build", "mutants")
SUPPORT = os.path.join(BUILD, "support")
# Header stem -> test files that check it under another name, and folder -> general test files.
TESTS = {
    "assign_types": ["stage/gradient_block", "stage/several_types", "stage/callers_memory"], "checked": ["comm/mismatch", "comm/decorators"],
    "checksum": ["checkpoint/safetensors_reader", "checkpoint/damaged_file"], "collective_call": ["comm/mismatch", "comm/arguments"],
    "collectives": ["mpi/conformance_ranks", "mpi/enqueue_ranks"], "compared_options": ["stage/settings_agreement"], "count_blocks": ["layout/sizes"],
    "decide_step": ["stage/no_gradients", "stage/skip_limit"], "decorator": ["comm/decorators"], "family": ["mpi/communicator_ranks"],
    "file": ["checkpoint/safetensors_writer", "checkpoint/damaged_file"], "file_job": ["checkpoint/checkpoint_saver", "checkpoint/slow_files"],
    "flat_layout": ["layout/piece_position", "layout/sizes", "layout/hash", "layout/range"], "failure_record": ["comm/abort", "mpi/communicator_ranks"], "flight": ["mpi/conformance_ranks", "mpi/enqueue_ranks"],
    "flights": ["mpi/enqueue_ranks"], "polled_time": ["comm/time_out"],
    "gather_order": ["layout/gather_plan", "layout/traffic"], "gather_schedule": ["stage/gather_limits", "stage/prefetch", "stage/order_agreement"],
    "gradient_norms": ["stage/gradient_norms", "stage/report_figures"], "gradient_scheduler": ["stage/protocol", "stage/several_queues", "stage/no_gradients"],
    "gradient_source": ["layout/describe_leases", "layout/memory_plan_tiny"],
    "gradient_store": ["stage/unzeroed_gradients", "stage/callers_memory", "stage/full_gradient"],
    "gradient_sum_store": ["stage/parity", "stage/gradient_block", "stage/weighted_mean"], "group_place": ["comm/arguments", "comm/split"],
    "group_sources": ["checkpoint/groups"], "json_tree": ["checkpoint/manifest"], "load_plan": ["checkpoint/reshard", "checkpoint/resume"],
    "load_state": ["checkpoint/resume", "checkpoint/reshard"], "loopback_group": ["comm/abort", "comm/split", "comm/mismatch"],
    "make_buckets": ["layout/bucketer", "layout/sizes", "layout/adopted", "layout/gather_plan"],
    "make_stage_layout": ["stage/bad_input", "stage/callers_memory"], "manifest_text": ["checkpoint/manifest"],
    "master_weight_store": ["stage/float16_master", "stage/split_master"],
    "on_every_rank": ["checkpoint/slow_files", "checkpoint/early_refusals"], "optimizer_state_store": ["stage/optimizers", "stage/state_types"],
    "optimizer_store": ["stage/optimizers", "stage/update_tiles", "stage/caller_update"], "parameter_scheduler": ["stage/prefetch", "stage/gather_limits"],
    "parameter_store": ["stage/storage", "stage/full_parameter", "stage/poison"], "peers": ["mpi/communicator_ranks", "mpi/enqueue_ranks"],
    "place_in_bucket": ["layout/partitioner", "layout/cuts"], "place_leases": ["layout/lease_plan", "layout/lease_plan_random"],
    "plan_manifest": ["checkpoint/manifest", "checkpoint/reshard"], "read_manifest": ["checkpoint/manifest"],
    "readiness": ["stage/protocol", "stage/skipped_units", "stage/order_agreement"], "rendezvous": ["comm/time_out", "comm/abort", "comm/run_ranks"],
    "report_store": ["stage/report_figures"], "require_agreement": ["stage/agreement", "stage/gradient_block"],
    "require_same_memory": ["stage/moved_memory", "stage/settings_agreement"], "run_threads": ["comm/run_ranks", "comm/run_rank"],
    "safetensors_header": ["checkpoint/safetensors_reader", "checkpoint/safetensors_writer"], "skip_watch": ["stage/skip_limit"],
    "state_table": ["stage/training_state", "stage/training_state_errors"],
    "step_control": ["stage/no_gradients", "stage/loss_scaler_steps", "stage/skip_limit"], "step_errors": ["stage/skip_limit", "stage/loss_scaler_steps"],
    "step_settings": ["stage/bad_input", "stage/update_tiles", "stage/loss_scaler_steps"], "validate_arguments": ["stage/bad_input", "stage/messages"],
    "tensor_rules": ["checkpoint/foreign_refusals", "checkpoint/foreign_model"], "validate_parameters": ["layout/bad_input"],
}
GENERAL = {"layout": ["layout/sizes", "layout/special_models"], "comm": ["comm/loopback_conformance", "comm/hierarchical"],
           "checkpoint": ["checkpoint/resume", "checkpoint/damaged_file"], "stage": ["stage/parity", "stage/storage"],
           "mpi": ["mpi/conformance_ranks", "mpi/communicator_ranks", "mpi/enqueue_ranks"]}
SWAPS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "&&": "||", "||": "&&", "+=": "-=", "-=": "+=",
         "true": "false", "false": "true"}
TOKEN = re.compile(r"(?<= )(?:==|!=|<=|>=|&&|\|\||\+=|-=|[-+<>])(?= )|\b(?:true|false)\b|(?<![\w.'])\d+(?=U?\b(?![.'\w]))|!(?=[\w(*])")
CALL = re.compile(r"^\s*(?!return|throw|static_assert|delete|ZERO_)(?:\(void\))?[\w.:>-]+\([^{}]*\);\s*$")


def code_of(text):
    """`text` with comments, literals, preprocessor lines, attributes, static assertions and template heads blanked; offsets and lines stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*|\[\[[^\]]*\]\]|\bstatic_assert\b[^;]*;|= 0;", blank, text, flags=re.M)
    return re.sub(r"\btemplate <[^;{]*?>(?=\s)", blank, text)


def places_of(text):
    """Every mutant of a header, as (begin, end, replacement)."""
    code = code_of(text)
    for token in TOKEN.finditer(code):
        found = token.group()
        if found.isdigit():
            yield (*token.span(), str(int(found) + 1))
            if int(found) > 0:
                yield (*token.span(), str(int(found) - 1))
        else:
            yield (*token.span(), SWAPS.get(found, ""))
    begin, before = 0, ";"
    for line in code.splitlines(keepends=True):
        if CALL.match(line) and before in ";{}:":
            yield begin + len(line) - len(line.lstrip()), begin + len(line.rstrip()), ";"
        begin += len(line)
        before = line.strip()[-1:] or before


class Tests:
    """Compiles and runs test files against the copy of include/."""

    def __init__(self, options):
        self.options, self.times, self.passing = options, {}, set()
        shutil.rmtree(options.copy, ignore_errors=True)
        shutil.copytree("include", os.path.join(options.copy, "include"))
        self.flags = ["-std=c++20", "-O0", "-w", "-D_GLIBCXX_ASSERTIONS", "-pthread", f'-DZERO_SOURCE_DIR="{ROOT}"',
                      f"-I{BUILD}", f"-I{options.copy}/include", "-Itests", "-Itests/stage"]
        os.makedirs(SUPPORT, exist_ok=True)
        shutil.copy2("tests/support/catch.hpp", SUPPORT)  # a second #include of a unit does not find the precompiled one
        self.support = []
        for path in ["tests/support/catch.hpp", *sorted(glob.glob("tests/support/*.cpp"))]:
            is_header = path.endswith(".hpp")  # a precompiled Catch2 saves half of the time of a small test
            made = os.path.join(SUPPORT, os.path.basename(path) + (".gch" if is_header else ".o"))
            self.support += [] if is_header else [made]
            if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(path):
                self.compiles([options.compiler, *self.flags, *(["-x", "c++-header"] if is_header else ["-c"]), path, "-o", made])

    def compiles(self, command):
        done = subprocess.run([*shlex.split(self.options.launcher), *command], capture_output=True, text=True, check=False)
        if done.returncode and self.options.verbose:
            print(done.stderr, file=sys.stderr)
        return done.returncode == 0

    def compiler_of(self, test):
        return "mpicxx" if "/mpi/" in test else self.options.compiler

    def outcome(self, test):
        """'passes', 'fails', 'hangs' or 'does not compile'."""
        program, compiler = os.path.join(self.options.copy, "test"), self.compiler_of(test)
        if not self.compiles([compiler, *self.flags, "-c", test, "-o", program + ".o"]):
            return "does not compile"
        subprocess.run([compiler, "-pthread", program + ".o", *self.support, "-lxxhash", "-o", program], check=True)
        start = time.monotonic()
        memory = lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # noqa: E731
        with subprocess.Popen([*shlex.split(self.options.mpirun if "/mpi/" in test else ""), program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True, preexec_fn=memory) as process:
            try:
                status = process.wait(max(self.options.limit, 10 * self.times.get(test, 0)))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "hangs"
        if not status:
            self.times[test] = time.monotonic() - start
            self.passing.add(test)
        return "fails" if status else "passes"

    @functools.cache
    def headers_of(self, test):
        command = [self.compiler_of(test), *self.flags, "-MM", test]
        paths = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return {os.path.relpath(os.path.normpath(path), self.options.copy) for path in paths if path.startswith(self.options.copy)}

    def of(self, header):
        if self.options.tests:
            return self.options.tests
        stem, folder = os.path.splitext(os.path.basename(header))[0], header.split("/")[2]
        every = [path for path in sorted(glob.glob("tests/*/*_test.cpp")) if not re.match(r"tests/(cuda|torch|guard|examples|mpi)/", path)]
        named = [path for path in every if stem in os.path.basename(path)]
        including = sorted((path for path in every if f"<{header[len('include/'):]}>" in open(path, encoding="utf-8").read()), key=os.path.getsize)
        listed, general = ([f"tests/{name}_test.cpp" for name in names] for names in (TESTS.get(stem, []), GENERAL.get(folder, [])))
        of_header = (test for test in dict.fromkeys([*listed, *named, *including, *general]) if header in self.headers_of(test))
        return list(itertools.islice(of_header, self.options.most))

    def write(self, header, text):
        with open(os.path.join(self.options.copy, header), "w", encoding="utf-8") as stream:
            stream.write(text)

    def try_mutant(self, header, text, mutant):
        """What became of a mutant, and the test that decided it."""
        tests = self.of(header)
        if not tests:
            return "not tried", "no test in TESTS or of the folder contains it; name one with --tests"
        for test in tests:
            self.write(header, mutant)
            found = self.outcome(test)
            self.write(header, text)
            if found == "passes":
                continue
            if test not in self.passing and (without := self.outcome(test)) != "passes":
                sys.exit(f"{test} {without} without a mutant; --verbose prints why")
            return ("does not compile" if found == "does not compile" else "killed"), f"{test} {found}"
        return "survived", " ".join(tests)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("headers", nargs="+", metavar="FOLDER|HEADER|HEADER:LINE")
    parser.add_argument("--count", type=int, default=10, help="number of mutants (10), in turn from every header; of a named line all, if it is large enough")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=3, help="most test files of a header (3)")
    parser.add_argument("--tests", nargs="*", help="these test files for every header")
    parser.add_argument("--lines", default="", help="a regular expression: only lines that contain it")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--launcher", default="", help="a prefix of every compilation, such as ccache")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe -n 7")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test file, and at least ten times those of a run that passed (60)")
    parser.add_argument("--copy", default=os.path.join(BUILD, "copy"), help="the folder of the changed copy; runs beside one another need one each")
    parser.add_argument("--verbose", action="store_true", help="print the compiler's messages")
    options = parser.parse_args()
    os.chdir(ROOT)
    lines = {}  # by header: the only lines to change, if the caller named them
    for given in options.headers:
        path, _, line = given.partition(":")
        for header in sorted(glob.glob(path + "/**/*.?pp", recursive=True)) if os.path.isdir(path) else [path]:
            lines.setdefault(os.path.relpath(header), set()).update([int(line)] if line else [])
    headers = list(lines)
    texts = {header: open(header, encoding="utf-8").read() for header in headers}
    pools = []
    for header in headers:
        text, pool = texts[header], []
        for place in places_of(text):
            line = text.count("\n", 0, place[0])
            if line + 1 in (lines[header] or [line + 1]) and re.search(options.lines, text.splitlines()[line]):
                pool.append((header, *place))
        pools.append(random.Random(f"{options.seed} {header}").sample(pool, len(pool)))
    random.Random(options.seed).shuffle(pools)
    chosen = [place for turn in itertools.zip_longest(*pools) for place in turn if place][:options.count]
    tests, counts, diffs = Tests(options), collections.Counter(), []
    for header, begin, end, new in sorted(chosen):
        text = texts[header]
        mutant = text[:begin] + new + text[end:]
        fate, why = tests.try_mutant(header, text, mutant)
        counts[fate] += 1
        print(f"{fate}: {header}:{text.count(chr(10), 0, begin) + 1}: '{text[begin:end]}' -> '{new}' ({why})", flush=True)
        if fate == "survived":
            diffs += difflib.unified_diff(text.splitlines(True), mutant.splitlines(True), "a/" + header, "b/" + header, n=2)
    print(", ".join(f"{number} {fate}" for fate, number in sorted(counts.items())), "".join(diffs), sep="\n")


if __name__ == "__main__":
    main()
