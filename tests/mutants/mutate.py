"""Changes one token of a header at a time and tells which changes no test notices.

usage: mutate.py [options] FOLDER|HEADER|HEADER:LINE ...      for instance: mutate.py --count 20 include/zero/layout include/zero/comm/loopback.hpp

Each mutant is one change at a random place: == <-> !=, < <-> <=, > <-> >=, + <-> -, && <-> ||, true <-> false, a constant plus or minus 1, a '!' or a call
removed. All are in one copy of include/, each as a branch of the smallest expression around it that the environment selects at run time. So a test file is
compiled once, header-only and without optimisation, and runs for every mutant that it reaches. What only the compiler evaluates is tried alone. A mutant is
    killed            a test fails, crashes, or exceeds the time limit;
    does not compile  the type system or a static_assert refused it;
    survived          every test file that was tried passes: write an assertion that fails, or know why the change is equivalent.
The test files of a header are those of its folder in GENERAL, then the first `--most` with its stem in their name or that include it. The run is not part
of the test suite. Linux, g++ or clang++, Catch2 2, libxxhash.
"""

import argparse
import collections
import functools
import glob
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD, SUPPORT = "build/mutants", "build/mutants/support"
# General test files of each folder, those first that kill most.
GENERAL = {
    "layout": "sizes gather_plan lease_plan special_models bucketer partitioner traffic memory_plan_tiny bad_input cuts hash piece_position",
    "comm": "loopback_conformance hierarchical abort mismatch split arguments decorators time_out run_ranks",
    "checkpoint": "resume reshard damaged_file manifest safetensors_reader safetensors_writer checkpoint_saver foreign_refusals slow_files groups",
    "stage": "parity storage protocol gradient_block skip_limit loss_scaler_steps bad_input optimizers gather_limits prefetch update_tiles "
             "callers_memory several_types training_state order_agreement settings_agreement report_figures no_gradients",
    "mpi": "communicator_ranks conformance_ranks enqueue_ranks hierarchical_ranks",
}
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


# What every switch asks. A run without a mutant notes the switches that it reaches.
SWITCH = """
#include <atomic>
#include <cstdio>
#include <cstdlib>
inline bool zero_is_mutant(int number) {
    static int const selected = std::atoi(std::getenv("ZERO_MUTANT"));
    static std::atomic<bool> is_noted[10000];
    if (selected == 0 && !is_noted[number].exchange(true)) {
        std::FILE* const file = std::fopen(std::getenv("ZERO_MUTANTS_REACHED"), "a");
        std::fprintf(file, "%d\\n", number);
        std::fclose(file);
    }
    return number == selected;
}
constexpr bool zero_mutant(int number) { return !__builtin_is_constant_evaluated() && zero_is_mutant(number); }
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
        self.programs, self.times, self.reached = {}, {}, {}  # by test files compiled together: seconds without a mutant; what they reached, if they passed
        shutil.copytree("include", os.path.join(options.copy, "include"), dirs_exist_ok=True)
        first = pathlib.Path(options.copy, "include/zero/core/detail/namespace.hpp")
        first.write_text(first.read_text(encoding="utf-8") + SWITCH, encoding="utf-8")
        for header in {mutant[0] for mutant in mutants.values()}:
            self.write(header)
        self.flags = ["-std=c++20", "-O0", "-w", "-D_GLIBCXX_ASSERTIONS", "-pthread", f'-DZERO_SOURCE_DIR="{ROOT}"',
                      f"-I{BUILD}", f"-I{options.copy}/include", "-Itests", "-Itests/stage"]
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
        pathlib.Path(self.options.copy, header).write_text(text, encoding="utf-8")

    def compile(self, *arguments):
        """The compiler's messages; empty if it succeeds."""
        compiler = "mpicxx" if "/mpi" in arguments[0] else self.options.compiler
        launcher = self.options.launcher.split() if "-c" in arguments else []
        done = subprocess.run([*launcher, compiler, *self.flags, *arguments], capture_output=True, text=True, check=False)
        return (done.stderr or "no message") if done.returncode else ""

    def link(self, unit, program):
        pathlib.Path(program + ".cpp").write_text("".join(f'#include "{ROOT}/{test}"\n' for test in unit.split()), encoding="utf-8")
        return self.compile(program + ".cpp", "-c", "-o", program + ".o") or self.compile(program + ".o", *self.support, "-lxxhash", "-o", program)

    def run(self, unit, program, number):
        """'passes', 'fails' or 'hangs'; the number 0 selects no mutant and notes what the tests reach."""
        start, limit = time.monotonic(), max(self.options.limit, 10 * self.times.get(unit, self.options.limit))
        start_with = f"prlimit --as={16 << 30} timeout --signal=KILL {limit} " + (self.options.mpirun if "/mpi/" in unit else "")
        variables = {**os.environ, "ZERO_MUTANT": str(number), "ZERO_MUTANTS_REACHED": os.path.abspath(program + ".reached")}
        done = subprocess.run([*start_with.split(), program, "--abort"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.times.setdefault(unit, seconds := time.monotonic() - start)
        return "passes" if done.returncode == 0 else "hangs" if seconds > limit else "fails"

    def build(self, tests):
        """Compiles new test files, several of a folder together, and runs them. Mutants that the compiler refuses are no longer selectable."""
        left, most = [], self.options.together
        for folder, new in itertools.groupby(sorted(set(tests) - set(" ".join(self.programs).split())), os.path.dirname):
            left += (units := [" ".join(some) for some in iter(lambda new=new: list(itertools.islice(new, most)), [])])
            self.programs.update({unit: f"{self.options.copy}/{os.path.basename(folder)}_{len(self.programs) + i}" for i, unit in enumerate(units)})
        while left:
            found = {unit: self.link(unit, self.programs[unit]) for unit in left}
            for unit in (unit for unit in left if not found[unit]):
                reached = pathlib.Path(self.programs[unit] + ".reached")
                reached.write_text("", encoding="utf-8")
                if (outcome := self.run(unit, self.programs[unit], 0)) == "passes":
                    self.reached[unit] = set(map(int, reached.read_text(encoding="utf-8").split()))
                print(f"{unit} {outcome} without a mutant, in {self.times[unit]:.1f} s", flush=True)
            left = [unit for unit in left if found[unit]]
            named = [place for unit in left for place in re.findall(re.escape(self.options.copy) + r"/(include/[^:\s]+):(\d+)", found[unit])]
            places = {(os.path.normpath(path), line) for path, line in named}
            refused = {number for number in self.selectable for header, first, last in [self.lines[number]]
                       if any((header, str(line)) in places for line in range(first, last + 1))}
            assert refused or not left, found[left[0]]
            self.selectable -= refused
            for header in {self.mutants[number][0] for number in refused}:
                self.write(header)

    @functools.cache
    def headers_of(self, test):
        depends = os.path.join(self.options.copy, "depends")
        self.compile(test, "-MM", "-MF", depends)
        return {os.path.relpath(path, self.options.copy) for path in pathlib.Path(depends).read_text(encoding="utf-8").split()}

    @functools.cache
    def of(self, header):
        """The general tests of a header, and those of its own."""
        stem, folder = os.path.basename(header)[:-4], header.split("/")[2]
        every = [path for path in sorted(glob.glob("tests/*/*_test.cpp")) if not re.search("/(cuda|torch|guard|examples|mpi)/|oracle|alone", path)]
        including = (path for path in every if f"<{header[len('include/'):]}>" in pathlib.Path(path).read_text(encoding="utf-8"))
        own = dict.fromkeys([*(path for path in every if stem in os.path.basename(path)), *sorted(including, key=os.path.getsize)])
        general = [f"tests/{folder}/{name}_test.cpp" for name in GENERAL.get(folder, "").split()]
        chosen = itertools.islice((test for test in own if test not in general and header in self.headers_of(test)), self.options.most)
        return (self.options.tests, []) if self.options.tests else (general, list(chosen))

    def fates(self):
        """Yields (number, fate, why) of every mutant."""
        left, tried = set(self.mutants), collections.defaultdict(list)
        while left & self.selectable:
            built = set(" ".join(self.programs).split())
            untried = [[test for test in tests if test not in built] for number in left & self.selectable for tests in self.of(self.mutants[number][0])]
            general = [tests[:self.options.together] for tests in untried[::2]]
            if not (wanted := sum(general, []) or sum(untried, [])):
                break
            self.build(wanted)
            for number in sorted(left & self.selectable):
                for unit in (unit for unit in sorted(self.reached, key=self.times.get) if number in self.reached[unit] and unit not in tried[number]):
                    tried[number].append(unit)
                    if (outcome := self.run(unit, self.programs[unit], number)) != "passes":
                        left.remove(number)
                        yield number, "killed", f"{unit} {outcome}"
                        break
        for number in sorted(left):
            yield number, *(("survived", " ".join(tried[number])) if tried[number] else self.fate_apart(number))

    def fate_apart(self, number):
        """What becomes of a mutant that no run can select."""
        header = self.mutants[number][0]
        self.build(tests := sum(reversed(self.of(header)), [])[:self.options.most])
        unit, program = " ".join(tests), os.path.join(self.options.copy, header.split("/")[2] + "_apart")
        if not tests or not all(any(test in passing for passing in self.reached) for test in tests):
            return "not tried", unit or "no test of the folder; name one with --tests"
        self.write(header, number)
        refused = self.link(unit, program)
        self.write(header)
        outcome = "does not compile" if refused else self.run(unit, program, number)
        return {"passes": "survived", "does not compile": outcome}.get(outcome, "killed"), f"{unit} {outcome}, alone"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("headers", nargs="+", metavar="FOLDER|HEADER|HEADER:LINE")
    parser.add_argument("--count", type=int, default=10, help="number of mutants (10), in turn from every header; of a named line all, if it is large enough")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=3, help="most test files of a header beside the general ones (3)")
    parser.add_argument("--tests", nargs="*", help="these test files for every header")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--launcher", default="", help="a prefix of every compilation, such as ccache")
    parser.add_argument("--together", type=int, default=6, help="most test files of a folder that are compiled together (6)")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe -n 7")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a run, and at least ten times those of the same without a mutant (60)")
    parser.add_argument("--copy", default=os.path.join(BUILD, "copy"), help="the folder of the changed copy; runs beside one another need one each")
    options = parser.parse_args()
    os.chdir(ROOT)
    lines = {}  # by header: the only lines to change, if the caller named them
    for given in options.headers:
        path, _, line = given.partition(":")
        for header in sorted(glob.glob(path + "/**/*.?pp", recursive=True)) if os.path.isdir(path) else [path]:
            lines.setdefault(os.path.relpath(header), set()).update([int(line)] if line else [])
    texts, pools = {header: pathlib.Path(header).read_text(encoding="utf-8") for header in lines}, []
    for header, text in texts.items():
        pool = [(header, *place) for place in places_of(text) if not lines[header] or text.count("\n", 0, place[0]) + 1 in lines[header]]
        pools.append(random.Random(f"{options.seed} {header}").sample(pool, len(pool)))
    random.Random(options.seed).shuffle(pools)
    chosen = [place for turn in itertools.zip_longest(*pools) for place in turn if place][:options.count]
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
