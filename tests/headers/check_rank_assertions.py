#!/usr/bin/env python3
"""Finds assertions of Catch2 in threads: python3 check_rank_assertions.py REPOSITORY

Catch2 2 loses assertions of several threads at once. So what tests pass to the calls below asserts
nothing itself, unless the main thread waits for it alone: a single rank, or a thread that is joined
in the same statement. A callback that has a name is not followed.
"""

import pathlib
import re
import sys

CALL = re.compile(r"\b(?:run_ranks|on_ranks|run_and_observe|std::j?thread)\b")
ASSERTION = re.compile(r"\b(?:CHECK|REQUIRE|FAIL|SUCCEED)\w*\(")
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')


def end_of(code, begin, brackets):
    """The place behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(code)):
        depth += (code[at] in brackets[0]) - (code[at] in brackets[1])
        if depth == 0:
            return at + 1
    return len(code)


def wrong_lines(source):
    """The lines with an assertion in a thread."""
    code = TEXT.sub(lambda text: " " * len(text.group()), source)
    lines = []
    for call in CALL.finditer(code):
        begin = call.end()
        if code.startswith("<", begin):
            begin = end_of(code, begin, "<>")
        begin = re.compile(r"[\w\s]*").match(code, begin).end()  # a thread may have a name
        if code[begin : begin + 1] not in ("(", "{"):
            continue
        end = end_of(code, begin, ("({[", ")}]"))
        arguments = code[begin + 1 : end - 1]
        assertion = ASSERTION.search(arguments)
        is_alone = re.match(r"\s*1\s*,", arguments) or code.startswith(".join()", end)
        if assertion and not is_alone:
            lines.append(code.count("\n", 0, begin + 1 + assertion.start()) + 1)
    return lines


def check_controls():
    body = "\n    CHECK(x < 1);\n"
    for right in (
        "on_ranks<int>(1, [&](auto&) {" + body + "});",
        "std::thread([&] {" + body + "}).join();",
        "auto const a = on_ranks<List<int>>(2, [] { return 1; })[0];" + body,
        "run_ranks(2, [] {}); // CHECK(x)",
        'run_ranks(2, [] { f("CHECK(x)"); });',
    ):
        assert not wrong_lines(right), right
    for wrong in (
        "on_ranks<List<int>>(world, [&](auto& c) {" + body + "});",
        "run_ranks<C>(12, options, [&](auto&) { f({1}); {" + body + "} });",
        "run_and_observe(1 + x, [] {" + body + "});",
        "std::thread const other([&] {" + body + "});",
        "std::jthread other{[&] {" + body + "}};",
    ):
        assert wrong_lines(wrong) == [2], wrong


def main():
    check_controls()
    root = pathlib.Path(sys.argv[1])
    files = [file for file in sorted((root / "tests").rglob("*")) if re.fullmatch(r"\.(cpp|hpp|cu|cuh)", file.suffix)]
    assert len(files) > 300
    wrong = [f"{file.relative_to(root)}:{line}" for file in files for line in wrong_lines(file.read_text())]
    if wrong:
        sys.exit("assertions in threads, which Catch2 loses; return what they compare to the main thread:\n" + "\n".join(wrong))


main()
