"""Changes one token of a header at a time and tells which changes no test notices.

usage: mutate.py [options] HEADER|FOLDER ...      for instance: mutate.py --count 20 include/zero/layout include/zero/comm/loopback.hpp

Each mutant is one change at a random place: == <-> !=, < <-> <=, > <-> >=, + <-> -, && <-> ||, true <-> false, a constant plus or minus 1, a removed '!', a removed call.
It is made in a copy of include/, and the test files of its header are compiled against that copy, header-only and without optimisation, and run. A mutant is
    killed            a test fails, crashes, or exceeds the time limit;
    does not compile  the type system or a static_assert refused it;
    survived          every test file that was tried passes: write an assertion that fails, or know why the change is equivalent.
The tests of a header are the first `--most` whose translation unit contains it, of its files in TESTS, those with its stem in their name and those that include it; if
there are none, those of its folder in GENERAL. The run is not part of the test suite: it takes 5 to 60 s a mutant. Linux, g++ or clang++, Catch2 2, libxxhash.
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
COPY = os.path.join(BUILD, "copy")
# Header stem -> test files that check it under another name, and folder -> general test files.
TESTS = {
    "checksum": ["checkpoint/safetensors_reader", "checkpoint/damaged_file"], "collective_call": ["comm/mismatch", "comm/arguments"],
    "compared_options": ["stage/settings_agreement"], "count_blocks": ["layout/sizes"], "decide_step": ["stage/no_gradients", "stage/skip_limit"],
    "file": ["checkpoint/safetensors_writer", "checkpoint/damaged_file"], "flat_layout": ["layout/piece_position", "layout/sizes", "layout/hash", "layout/range"],
    "gather_order": ["layout/gather_plan", "layout/traffic"], "gather_schedule": ["stage/gather_limits", "stage/prefetch", "stage/order_agreement"],
    "group_place": ["comm/arguments", "comm/split"], "load_plan": ["checkpoint/reshard", "checkpoint/resume"], "loopback_group": ["comm/abort", "comm/split"],
    "make_buckets": ["layout/bucketer", "layout/sizes", "layout/adopted", "layout/gather_plan"], "place_in_bucket": ["layout/partitioner", "layout/cuts"],
    "place_leases": ["layout/lease_plan", "layout/lease_plan_random"], "read_manifest": ["checkpoint/manifest"], "rendezvous": ["comm/time_out", "comm/abort", "comm/run_ranks"],
    "figure_store": ["stage/report_figures"], "require_agreement": ["stage/agreement"], "run_threads": ["comm/run_ranks", "comm/run_rank"],
    "safetensors_header": ["checkpoint/safetensors_reader", "checkpoint/safetensors_writer"], "skip_watch": ["stage/skip_limit"],
    "state_table": ["stage/training_state", "stage/training_state_errors"], "step_control": ["stage/no_gradients", "stage/loss_scaler_steps", "stage/skip_limit"],
    "validate_parameters": ["layout/bad_input"], "validate_arguments": ["stage/bad_input", "stage/messages"],
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
        self.options, self.times = options, {}
        shutil.rmtree(COPY, ignore_errors=True)
        shutil.copytree("include", os.path.join(COPY, "include"))
        self.flags = ["-std=c++20", "-O0", "-w", "-pthread", f'-DZERO_SOURCE_DIR="{ROOT}"', f"-I{BUILD}", f"-I{COPY}/include", "-Itests", "-Itests/stage"]
        os.makedirs(os.path.join(BUILD, "support"), exist_ok=True)
        self.support = []
        for path in ["tests/support/catch.hpp", *sorted(glob.glob("tests/support/*.cpp"))]:
            is_header = path.endswith(".hpp")  # a precompiled Catch2 saves half of the time of a small test
            made = os.path.join(BUILD, "support", os.path.basename(path) + (".gch" if is_header else ".o"))
            self.support += [] if is_header else [made]
            if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(path):
                self.run([options.compiler, *self.flags, *(["-x", "c++-header"] if is_header else ["-c"]), path, "-o", made])

    def run(self, command):
        done = subprocess.run([*shlex.split(self.options.launcher), *command], capture_output=True, text=True, check=False)
        if done.returncode and self.options.verbose:
            print(done.stderr, file=sys.stderr)
        return done.returncode == 0

    def outcome(self, test):
        """'passes', 'fails', 'hangs' or 'does not compile'."""
        program, is_mpi = os.path.join(COPY, "test"), "/mpi/" in test
        compiler = ["mpicxx"] if is_mpi else [self.options.compiler]
        if not (self.run([*compiler, *self.flags, "-MMD", "-c", test, "-o", program + ".o"])
                and self.run([*compiler, "-pthread", program + ".o", *self.support, "-lxxhash", "-o", program])):
            return "does not compile"
        start = time.monotonic()
        memory = lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # noqa: E731
        with subprocess.Popen([*shlex.split(self.options.mpirun if is_mpi else ""), program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True, preexec_fn=memory) as process:
            try:
                status = process.wait(max(self.options.limit, 10 * self.times.get(test, self.options.limit)))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "hangs"
        self.times.setdefault(test, time.monotonic() - start)
        return "fails" if status else "passes"

    @functools.cache
    def headers_of(self, test):
        """The headers of an unchanged test, which has to pass."""
        if (found := self.outcome(test)) != "passes":
            sys.exit(f"{test} {found} without a mutant; --verbose prints why")
        with open(os.path.join(COPY, "test.d"), encoding="utf-8") as stream:
            return {os.path.relpath(os.path.normpath(path), COPY) for path in stream.read().split() if path.startswith(COPY)}

    def of(self, header):
        if self.options.tests:
            return self.options.tests
        stem, folder = os.path.splitext(os.path.basename(header))[0], header.split("/")[2]
        every = [path for path in sorted(glob.glob("tests/*/*_test.cpp")) if not re.match(r"tests/(cuda|torch|guard|examples|mpi)/", path)]
        named = [path for path in every if stem in os.path.basename(path)]
        including = sorted((path for path in every if f"<{header[len('include/'):]}>" in open(path, encoding="utf-8").read()), key=os.path.getsize)
        listed, general = ([f"tests/{name}_test.cpp" for name in names] for names in (TESTS.get(stem, []), GENERAL.get(folder, [])))
        of_header = (test for test in dict.fromkeys([*listed, *named, *including]) if header in self.headers_of(test))
        return list(itertools.islice(of_header, self.options.most)) or general

    def try_mutant(self, header, text, mutant):
        """What became of a mutant, and the test that decided it."""
        tests = self.of(header)  # compiles them without the mutant
        with open(os.path.join(COPY, header), "w", encoding="utf-8") as stream:
            stream.write(mutant)
        try:
            for test in tests:
                if (found := self.outcome(test)) != "passes":
                    return ("does not compile" if found == "does not compile" else "killed"), f"{test} {found}"
            return "survived", " ".join(tests) or "no test"
        finally:
            with open(os.path.join(COPY, header), "w", encoding="utf-8") as stream:
                stream.write(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("headers", nargs="+", metavar="HEADER|FOLDER")
    parser.add_argument("--count", type=int, default=10, help="number of mutants (10), in turn from every header")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=3, help="most test files of a header (3)")
    parser.add_argument("--tests", nargs="*", help="these test files for every header")
    parser.add_argument("--lines", default="", help="a regular expression: only lines that contain it")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--launcher", default="", help="a prefix of every compilation, such as ccache")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe -n 7")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test file, and at least ten times those without a mutant (60)")
    parser.add_argument("--verbose", action="store_true", help="print the compiler's messages")
    options = parser.parse_args()
    os.chdir(ROOT)
    headers = [os.path.relpath(path) for given in options.headers
               for path in (sorted(glob.glob(given + "/**/*.?pp", recursive=True)) if os.path.isdir(given) else [given])]
    texts = {header: open(header, encoding="utf-8").read() for header in headers}
    pools = []
    for header in headers:
        pool = [(header, *place) for place in places_of(texts[header]) if re.search(options.lines, texts[header].splitlines()[texts[header].count("\n", 0, place[0])])]
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
