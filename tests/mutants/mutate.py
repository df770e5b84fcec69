"""Changes one token of a header at a time and tells which changes no test notices.

usage: mutate.py [options] FOLDER|HEADER|HEADER:LINE ...      for instance: mutate.py --count 20 include/zero/layout include/zero/comm/loopback.hpp

Each mutant is one change at a random place: == <-> !=, < <-> <=, > <-> >=, + <-> -, && <-> ||, true <-> false, a constant plus or minus 1, a '!' or a call
removed. All are in one copy of include/, each as a branch of the smallest expression around it that the environment selects at run time. So a test file is
compiled once, header-only and without optimisation. A run without a mutant notes which test cases reach which place; those run with the mutant. What only the
compiler evaluates, or no test case reaches, is compiled alone, with `--most` test files that have the header's name or include it. A mutant is
    killed            a test fails, crashes, or exceeds the time limit, or a static assertion refuses it;
    does not compile  the type system refused it;
    survived          every test case that reaches it passes: write an assertion that fails, or know why the change is equivalent.
The test files are those of the headers' folders, or `--tests`. The run is not part of the test suite. Linux, g++ or clang++, Catch2 2, libxxhash.
"""

import argparse
import collections
import concurrent.futures
import functools
import glob
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD, SUPPORT = "build/mutants", "build/mutants/support"
SWAPS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "&&": "||", "||": "&&", "+=": "-=", "-=": "+=",
         "true": "false", "false": "true", "!": "!!"}
TOKEN = re.compile(r"(?<= )(?:==|!=|<=|>=|&&|\|\||\+=|-=|[-+<>])(?= )|\b(?:true|false)\b|(?<![\w.'])\d+(?=U?\b(?![.'\w]))|!(?=[\w(*])")
CALL = re.compile(r"^\s*(?!return|throw|static_assert|delete|ZERO_)(?:\(void\))?[\w.:>-]+\([^{}]*\);\s*$")


def code_of(text):
    """`text` with comments, preprocessor lines, attributes, static assertions, template heads and what is in literals blanked; offsets and lines stay."""
    blank = lambda match: re.sub(r"[^\n]", "_" if match[0][0] in "\"'" else " ", match[0])  # noqa: E731
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*|\[\[[^\]]*\]\]|\bstatic_assert\b[^;]*;|(?<![=!<>])= 0(?=;)", blank, text, flags=re.M)
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
            yield (*token.span(), SWAPS[found])
    begin, before = 0, ";"
    for line in code.splitlines(keepends=True):
        if CALL.match(line) and before in ";{}:":
            yield begin + len(line) - len(line.lstrip()), begin + len(line.rstrip()) - 1, ""
        begin += len(line)
        before = line.strip()[-1:] or before


# What every switch asks. A run without a mutant notes the switches that each test case reaches.
SWITCH = """
#include <atomic>
#include <cstdio>
#include <cstdlib>
inline char const* zero_test_case = "";
inline std::atomic<int> zero_test_cases;
inline void zero_note(int number) {
    std::FILE* const file = std::fopen(std::getenv("ZERO_MUTANTS_REACHED"), "a");
    std::fprintf(file, "%d %s\\n", number, zero_test_case);
    std::fclose(file);
}
inline bool zero_is_mutant(int number) {
    static int const selected = std::atoi(std::getenv("ZERO_MUTANT"));
    static std::atomic<int> noted[10000];
    int const now = zero_test_cases + 1;
    if (selected == 0 && noted[number] != now && noted[number].exchange(now) != now) {
        zero_note(number);
    }
    return number == selected;
}
constexpr bool zero_mutant(int number) { return !__builtin_is_constant_evaluated() && zero_is_mutant(number); }
"""
# Tells the switches which test case runs, ends one that hangs, and notes how it ended: 0 for success, and its milliseconds as a number below 0.
LISTENER = """
#include "support/catch.hpp"
#include <zero/core/detail/namespace.hpp>
#include <chrono>
#include <unistd.h>
struct ZeroListener : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    std::chrono::steady_clock::time_point start;
    void testCaseStarting(Catch::TestCaseInfo const& info) override {
        zero_test_case = info.name.c_str();
        ++zero_test_cases;
        start = std::chrono::steady_clock::now();
        alarm(static_cast<unsigned>(std::atoi(std::getenv("ZERO_CASE_SECONDS"))));
    }
    void testCaseEnded(Catch::TestCaseStats const& stats) override {
        zero_note(static_cast<int>((start - std::chrono::steady_clock::now()) / std::chrono::milliseconds(1)) - 1);
        stats.totals.testCases.failed == 0 ? zero_note(0) : void();
        zero_test_case = "";
    }
};
CATCH_REGISTER_LISTENER(ZeroListener)
"""
# Where an expression begins or ends. clang-format puts spaces around binary operators and none before a template's brackets.
EDGE = re.compile(r"(?P<open>[(\[{]|(?<![ <])<)|(?P<close>[)\]}]|(?<![ =-])(?<! >)>)|[,;?]|(?<!:):(?!:)|(?<![=<>!])=(?!=)|\b(?:return|case|throw)\b")


def scope_of(code, begin, end, new):
    """The smallest expression around a mutant, as (begin, end); None in a constraint."""
    if not new or re.fullmatch(r"\d+|true|false", code[begin:end]):
        return begin, end
    left, depth = 0, 0
    for edge in reversed(list(EDGE.finditer(code, 0, begin))):
        left = edge.end()
        is_close = edge["close"] and (depth or not re.match(r"}\s*\n", code[left - 1:]))
        if depth == 0 and not is_close:
            break
        depth += bool(is_close) - bool(edge["open"])
    for edge in EDGE.finditer(code, end):
        if depth == 0 and not edge["open"]:
            break
        depth += bool(edge["open"]) - bool(edge["close"])
    whole = code[left:edge.start()]
    is_constraint = re.search(r"\b(concept|requires)\b", code[code.rfind("\n", 0, left) + 1:edge.start()])
    return None if is_constraint else (left + len(whole) - len(whole.lstrip()), left + len(whole.rstrip()))


def with_switches(text, mutants):
    """`text` with the mutants {number: (begin, end, replacement)} to select from, its lines where they were, and {number: (first line, last line)}."""
    code, groups, lines = code_of(text), [], {}
    scopes = {number: scope for number, place in mutants.items() if (scope := scope_of(code, *place))}
    for number, scope in sorted(scopes.items(), key=lambda item: (item[1][0], -item[1][1])):
        if groups and scope[1] <= groups[-1][0][1]:
            groups[-1][1].append(number)
        else:
            groups.append((scope, [number]))
    for (first, last), numbers in reversed(groups):
        switch, kind = "", "" if all(mutants[number][2] for number in numbers) else "void"  # a call may be removed
        for number in numbers:
            begin, end, new = mutants[number]
            mutant = re.sub(r"\s*(//[^\n]*)?\n\s*", " ", text[first:begin] + new + text[end:last])
            switch += f"zero_mutant({number}) ? {kind}({mutant}) : "
            lines[number] = [text.count("\n", 0, at) + 1 for at in (first, last)]
        text = f"{text[:first]}({switch}{kind}({text[first:last]})){text[last:]}"
    return text, lines


class Tests:
    """Compiles and runs test files against the copy of include/ that has `mutants`, {number: (header, begin, end, replacement)}."""

    def __init__(self, options, texts, mutants):
        self.options, self.texts, self.mutants, self.selectable = options, texts, mutants, set(mutants)
        self.lines = {}  # (header, first line, last line) of each number that the copy can select
        # By test files compiled together: their program, the seconds of each passing case, and by mutant the cases that reach it.
        self.programs, self.seconds, self.reached = {}, {}, {}
        self.lock = threading.Lock()  # of selectable, and of the headers in the copy
        shutil.copytree("include", os.path.join(options.copy, "include"), dirs_exist_ok=True)
        first = pathlib.Path(options.copy, "include/zero/core/detail/namespace.hpp")
        first.write_text(first.read_text(encoding="utf-8") + SWITCH, encoding="utf-8")
        for header in {mutant[0] for mutant in mutants.values()}:
            self.write(header)
        self.flags = ["-std=c++20", "-O0", "-w", "-D_GLIBCXX_ASSERTIONS", "-DCATCH_CONFIG_EXTERNAL_INTERFACES", "-pthread", f'-DZERO_SOURCE_DIR="{ROOT}"',
                      f"-I{BUILD}", f"-I{options.copy}/include", "-Itests", "-Itests/stage", "-I."]
        shutil.copytree("tests/support", SUPPORT, dirs_exist_ok=True)  # a second #include of a unit does not find the precompiled one
        self.support = []
        for path in ["tests/support/catch.hpp", *sorted(glob.glob("tests/support/*.cpp"))]:
            is_header = path.endswith(".hpp")  # a precompiled Catch2 saves half of the time of a small test
            made = os.path.join(SUPPORT, os.path.basename(path) + (".gch" if is_header else ".o"))
            self.support += [] if is_header else [made]
            if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(path):
                self.compile(path, *([] if is_header else ["-c"]), "-o", made)

    def write(self, header, alone=None):
        """Writes a header with its mutants to select from, or with one and no switch."""
        numbers = {number for number in self.selectable if self.mutants[number][0] == header}
        text, lines = with_switches(self.texts[header], {number: self.mutants[number][1:] for number in numbers})
        self.selectable -= numbers - set(lines)
        self.lines.update({number: (header, *lines[number]) for number in lines})
        if alone:
            _, begin, end, new = self.mutants[alone]
            text = self.texts[header][:begin] + new + self.texts[header][end:]
        whole = pathlib.Path(self.options.copy, header + ".whole")
        whole.write_text(text, encoding="utf-8")
        whole.rename(whole.with_suffix(""))  # a compiler beside it reads the old one or the new one

    def compile(self, *arguments):
        """The compiler's messages; empty if it succeeds."""
        compiler = "mpicxx" if "/mpi" in arguments[0] else self.options.compiler
        launcher = self.options.launcher.split() if "-c" in arguments else []
        done = subprocess.run([*launcher, compiler, *self.flags, *arguments], capture_output=True, text=True, check=False)
        return (done.stderr or "no message") if done.returncode else ""

    def link(self, unit, program):
        includes = "".join(f'#include "{ROOT}/{test}"\n' for test in unit.split())
        pathlib.Path(program + ".cpp").write_text(LISTENER + includes, encoding="utf-8")
        return self.compile(program + ".cpp", "-c", "-o", program + ".o") or self.compile(program + ".o", *self.support, "-lxxhash", "-o", program)

    def build(self, unit):
        """Compiles test files together, and returns an error message. Mutants that the compiler refuses are no longer selectable."""
        while True:
            before = set(self.selectable)
            if not (message := self.link(unit, self.programs[unit])):
                return ""
            named = re.findall(re.escape(self.options.copy) + r"/(include/[^:\s]+):(\d+)", message)
            places = {(os.path.normpath(path), int(line)) for path, line in named}
            refused = {number for number in before for header, first, last in [self.lines[number]]
                       if any((header, line) in places for line in range(first, last + 1))}
            if not refused:
                return message
            with self.lock:
                self.selectable -= refused
                for header in {self.mutants[number][0] for number in refused}:
                    self.write(header)

    def run(self, unit, program, number, cases=()):
        """'passes', 'hangs', or how it fails; the number 0 selects no mutant and notes what the test cases reach."""
        seconds = self.seconds.get(unit, {})
        longest, whole = (function([0, *(seconds.get(case, 0) for case in cases)]) for function in (max, sum))
        limit = self.options.limit + 10 * whole if number and cases else 3600
        start_with = f"prlimit --data={16 << 30} timeout --kill-after=5 {limit} " + (self.options.mpirun if "/mpi/" in unit else "")
        variables = {**os.environ, "ZERO_MUTANT": str(number), "ZERO_MUTANTS_REACHED": os.path.abspath(program + ".reached"),
                     "ZERO_CASE_SECONDS": str(round(self.options.limit + 10 * longest) if number else 0)}
        chosen = pathlib.Path(f"{program}.cases_{number}")
        # Catch2 2 reads no comma in a name: a case that has one is chosen by what stands before it.
        chosen.write_text("".join('"' + re.sub(r'[",\\].*', "*", case) + '"\n' for case in cases), encoding="utf-8")
        selection = ["--input-file", str(chosen)] if cases else []
        command = [*start_with.split(), program, *(["--abort"] if number else []), *selection]
        done = subprocess.run(command, env=variables, capture_output=True, encoding="utf-8", errors="replace", check=False)
        assert not re.search("No test cases matched|Invalid Filter|No tests ran", done.stdout), done.stdout
        place = re.search(r"\w+/\w+_test\.cpp:\d+(?=: FAILED)", done.stdout)
        return {0: "passes", 124: "hangs", 137: "hangs", -14: "hangs", 142: "hangs"}.get(done.returncode, place[0] if place else f"ends with {done.returncode}")

    def note(self, unit):
        """Runs test files without a mutant."""
        reached, passed, seconds, every = collections.defaultdict(set), set(), {}, set()
        notes = pathlib.Path(self.programs[unit] + ".reached")
        notes.write_text("", encoding="utf-8")
        self.run(unit, self.programs[unit], 0)
        for number, _, case in (line.partition(" ") for line in notes.read_text(encoding="utf-8").splitlines()):
            every.add(case)
            if int(number) < 0:
                seconds[case] = -int(number) / 1000
            else:
                (passed if number == "0" else reached[int(number)]).add(case)
        self.seconds[unit] = {case: seconds[case] for case in passed}
        self.reached[unit] = {number: sorted(passed if "" in cases else cases & passed) for number, cases in reached.items()}
        failed = " ".join(f"'{case}' fails without a mutant" for case in sorted(every - passed - {""}))
        print(f"{self.programs[unit]} of {unit}: {len(passed)} test cases in {sum(self.seconds[unit].values()):.1f} s {failed}", flush=True)

    def units(self):
        """The test files, those together that are compiled together."""
        folders = dict.fromkeys(mutant[0].split("/")[2] for mutant in self.mutants.values())
        every = self.options.tests or [path for folder in folders for path in sorted(glob.glob(f"tests/{folder}/*_test.cpp"))
                                       if not re.search("oracle_|_alone_|_runs_", path)]
        for key, tests in itertools.groupby(every, lambda path: path if re.search("oracle_|_alone_", path) else os.path.dirname(path)):
            while some := list(itertools.islice(tests, len(every) if "/mpi" in key else self.options.together)):
                yield " ".join(some)

    def fates(self):
        """Yields (number, fate, why) of every mutant."""
        left, tried = set(self.mutants), collections.Counter()
        units = list(self.units())
        self.programs = {unit: f"{self.options.copy}/{os.path.basename(os.path.dirname(unit))}_{i}" for i, unit in enumerate(units)}
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            builds = {pool.submit(self.build, unit): unit for unit in units}
            for build in concurrent.futures.as_completed(builds):
                unit = builds[build]
                if message := build.result():
                    print(f"{unit} does not compile: {message}", flush=True)
                    continue
                self.note(unit)
                runs = {number: cases for number, cases in self.reached[unit].items() if cases and number in left}
                with concurrent.futures.ThreadPoolExecutor(self.options.runs) as some:
                    outcomes = list(some.map(lambda run, unit=unit: self.run(unit, self.programs[unit], *run), runs.items()))
                for (number, cases), outcome in zip(runs.items(), outcomes):
                    tried[number] += len(cases)
                    if outcome != "passes":
                        left.remove(number)
                        yield number, "killed", f"{self.programs[unit]}: {outcome}"
        for number in sorted(left):
            yield number, *(("survived", f"{tried[number]} test cases") if number in self.selectable and tried[number] else self.fate_apart(number))

    def fate_apart(self, number):
        """What becomes of a mutant that no run can select, or that no test case reaches."""
        header = self.mutants[number][0]
        stem = os.path.basename(header)[:-4]
        every = [test for unit in self.programs for test in unit.split()]
        including = (test for test in every if f"<{header[len('include/'):]}>" in pathlib.Path(test).read_text(encoding="utf-8"))
        own = dict.fromkeys([*(test for test in every if stem in os.path.basename(test)), *sorted(including, key=os.path.getsize),
                             *(test for test in every if f"/{header.split('/')[2]}/" in test)])
        fates = []
        for unit in itertools.islice(own, self.options.most):
            self.write(header, number)
            message = self.link(unit, program := f"{self.options.copy}/{unit.split('/')[1]}_apart")
            self.write(header)
            if message:
                return "killed" if "static assertion failed" in message or "static_assert" in message else "does not compile", unit
            if (outcome := self.run(unit, program, number)) != "passes":
                return "killed", f"alone, {unit}: {outcome}"
            fates.append(unit)
        return ("survived" if fates else "not tried"), "alone: " + " ".join(fates)


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("headers", nargs="+", metavar="FOLDER|HEADER|HEADER:LINE")
    parser.add_argument("--count", type=numbers, default="10", help="mutants of each seed (10), such as 120,60, in turn from every header")
    parser.add_argument("--seed", type=numbers, default="1")
    parser.add_argument("--most", type=int, default=3, help="most test files of a mutant that is compiled alone (3)")
    parser.add_argument("--tests", nargs="*", help="these test files instead of those of the headers' folders")
    parser.add_argument("--jobs", type=int, default=1, help="test files that are compiled beside one another (1)")
    parser.add_argument("--runs", type=int, default=1, help="mutants that run beside one another (1); more where the machine is busy")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--launcher", default="", help="a prefix of every compilation, such as ccache")
    parser.add_argument("--together", type=int, default=6, help="most test files of a folder that are compiled together (6)")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe -n 7")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test case, beside ten times those without a mutant (60)")
    parser.add_argument("--copy", default=os.path.join(BUILD, "copy"), help="the folder of the changed copy; runs beside one another need one each")
    options = parser.parse_args()
    os.chdir(ROOT)
    lines = {}  # by header: the only lines to change, if the caller named them
    for given in options.headers:
        path, _, line = given.partition(":")
        for header in sorted(glob.glob(path + "/**/*.?pp", recursive=True)) if os.path.isdir(path) else [path]:
            lines.setdefault(os.path.relpath(header), set()).update([int(line)] if line else [])
    texts, chosen = {header: pathlib.Path(header).read_text(encoding="utf-8") for header in lines}, set()
    for seed, count in zip(options.seed, options.count):
        pools = []
        for header, text in texts.items():
            pool = [(header, *place) for place in places_of(text) if not lines[header] or text.count("\n", 0, place[0]) + 1 in lines[header]]
            pools.append(random.Random(f"{seed} {header}").sample(pool, len(pool)))
        random.Random(seed).shuffle(pools)
        chosen.update([place for turn in itertools.zip_longest(*pools) for place in turn if place][:count])
    mutants, counts = dict(enumerate(sorted(chosen), 1)), collections.Counter()
    for number, fate, why in Tests(options, texts, mutants).fates():
        header, begin, end, new = mutants[number]
        counts[fate] += 1
        before = texts[header][:begin]
        place = f"{header}:{before.count(chr(10)) + 1}:{begin - before.rfind(chr(10))}"
        print(f"{fate}: {place}: '{texts[header][begin:end]}' -> '{new}' ({why})", flush=True)
    print(", ".join(f"{number} {fate}" for fate, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
