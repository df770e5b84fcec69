#include "support/catch.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

// Runs scripts/gpu_check.sh with a fake compiler, whose programs do what a file `as/<program>`
// says.

namespace zero::test::gpu_check_test {

namespace {

namespace fs = std::filesystem;

constexpr char const* compiler = R"(#!/usr/bin/env bash
root=$(cd "$(dirname "$0")/.." && pwd)
printf '%s\n' "$*" >>"$root/calls"
while [ "$#" -gt 0 ]; do [ "$1" != -o ] || out=$2; shift; done
[ -n "${out:-}" ] || { cat >/dev/null; exit 0; }
name=$(basename "$out")
cat >"$out" <<END
#!/bin/sh
echo "$name \$*" >>"$root/runs"
[ ! -e "$root/as/$name" ] || . "$root/as/$name"
END
chmod +x "$out"
)";

std::string const probe = "probe: device, memory pools, capture";

/// A folder with the fake compiler; removed with this object.
class Toolkit {
public:
    Toolkit() {
        fs::remove_all(root);
        write("as/kernels_bench", "echo all is well");
        write("as/gpu_probe", "echo probe: a stub");
        write("bin/nvcc", compiler);
        for (char const* const missing : {"python3", "nvidia-smi", "ncu", "compute-sanitizer"}) {
            write(std::string("bin/") + missing, "#!/bin/sh\nexit 1\n");
        }
    }
    Toolkit(Toolkit const&) = delete;
    Toolkit& operator=(Toolkit const&) = delete;
    ~Toolkit() { fs::remove_all(root); }

    void write(std::string const& file, std::string const& text) const {
        fs::create_directories((root / file).parent_path());
        std::ofstream(root / file) << text;
        fs::permissions(root / file, fs::perms::owner_all);
    }

    /// Stands for a machine whose profilers and Python do nothing but succeed.
    void add_device() const {
        write("bin/nvidia-smi", "#!/bin/sh\necho a stub\n");
        for (char const* const there : {"python3", "ncu", "compute-sanitizer"}) {
            std::string const name = there;
            write("bin/" + name,
                  "#!/bin/sh\necho \"" + name + " $*\" >>" + (root / "runs").string() + "\n");
        }
    }

    /// @param tree the folder that holds scripts/
    [[nodiscard]] ProgramOutcome check(std::string const& options = {},
                                       std::string const& tree = ZERO_SOURCE_DIR) const {
        std::string const bin = (root / "bin").string();
        return run_program("PATH=" + bin + ":$PATH NVCC=" + bin + "/nvcc CXX=" + bin
                           + "/nvcc ZERO_JOBS=1 " + tree + "/scripts/gpu_check.sh --build "
                           + (tree == ZERO_SOURCE_DIR ? (root / "build").string() : "build/gpu")
                           + " " + options + " </dev/null");
    }

    /// Builds without an archive, which takes most of the time, and runs nothing.
    ProgramOutcome build() const {
        auto outcome = check("--call-seconds 0");
        INFO(outcome.output);
        REQUIRE(outcome.status == 5);
        return outcome;
    }

    [[nodiscard]] std::vector<std::string> lines_of(std::string const& file) const {
        std::vector<std::string> lines;
        std::ifstream stream(root / file);
        for (std::string line; std::getline(stream, line);) {
            lines.push_back(line);
        }
        return lines;
    }

    /// Returns the arguments with which `file` was compiled.
    [[nodiscard]] std::string options_of(std::string const& file) const {
        for (std::string const& call : lines_of("calls")) {
            if (call.find(file) != std::string::npos) {
                return call;
            }
        }
        return {};
    }

    /// Returns how often a program was started.
    [[nodiscard]] std::size_t starts_of(std::string const& program) const {
        auto const runs = lines_of("runs");
        return static_cast<std::size_t>(
            std::count_if(runs.begin(), runs.end(), [&](std::string const& run) {
                return run.substr(0, run.find(' ')) == program;
            }));
    }

    fs::path root = fs::temp_directory_path() / ("zero_gpu_check_" + std::to_string(::getpid()));
};

/// Checks that these rows are there, each after the one before.
void check_order(ProgramOutcome const& outcome, std::vector<std::string> const& rows) {
    INFO(outcome.output);
    std::size_t at = 0;
    for (std::string const& row : rows) {
        INFO(row);
        std::size_t const found = outcome.output.find('\n' + row, at);
        CHECK(found != std::string::npos);
        at = found == std::string::npos ? at : found + 1;
    }
}

} // namespace

TEST_CASE(
    "The check on a device optimises the programs that it times: benchmarks and the example") {
    Toolkit const toolkit;
    auto const outcome = toolkit.check();
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.after("\nbenchmark kernels_bench"), contains_text("passed"));
    for (char const* const file : {"/kernels_bench.cu", "/step_bench.cu", "/cuda_train_gpt.cu"}) {
        CHECK_THAT(toolkit.options_of(file), contains_text(" -O2 "));
    }
}

TEST_CASE("The check on a device fails if a benchmark reports an error with exit status 0, and is "
          "skipped without a device") {
    Toolkit const toolkit;
    SECTION("an error in one of its repetitions") {
        toolkit.write("as/kernels_bench",
                      "echo \"update/cuda ERROR OCCURRED: 'out of memory'\"; echo a_median 1 ms");
        auto const outcome = toolkit.check();
        CHECK(outcome.status == 1);
        CHECK_THAT(outcome.after("\nbenchmark kernels_bench"),
                   contains_text("FAILED") && contains_text("out of memory"));
    }
    SECTION("no device") {
        toolkit.write("as/kernels_bench",
                      "echo \"update/cuda ERROR OCCURRED: 'skipped: no CUDA device'\"");
        auto const outcome = toolkit.check();
        CHECK(outcome.status == 0);
        CHECK_THAT(outcome.after("\nbenchmark kernels_bench"), contains_text("skipped"));
    }
}

TEST_CASE(
    "The profiler gets names of kernels that the library has, and a row in which it finds none "
    "fails") {
    Toolkit const toolkit;
    toolkit.add_device();
    toolkit.build();
    SECTION("names") {
        CHECK(toolkit.check("--phase run --only bench").status == 0);
        std::string const text = "--kernel-name regex:";
        std::string const folder = ZERO_SOURCE_DIR "/include/zero/cuda/detail/kernels";
        std::set<std::string> all;
        for (std::string const& run : toolkit.lines_of("runs")) {
            if (std::size_t const at = run.find(text); run.rfind("ncu ", 0) == 0) {
                REQUIRE(at != std::string::npos);
                std::size_t const begin = at + text.size();
                std::istringstream names(run.substr(begin, run.find(' ', begin) - begin));
                for (std::string name; std::getline(names, name, '|');) {
                    INFO(name);
                    all.insert(name);
                    CHECK(
                        run_program("grep -qE '(^|[ ])" + name + "\\(' " + folder + "/*.cuh").status
                        == 0);
                }
            }
        }
        CHECK(all.size() == 4);
    }
    SECTION("no kernel") {
        toolkit.write("bin/ncu", "#!/bin/sh\necho '==WARNING== No kernels were profiled.'\n");
        auto const outcome = toolkit.check("--phase run --only bench");
        CHECK(outcome.status == 1);
        CHECK_THAT(outcome.after("\nncu of flatten"), contains_text("FAILED"));
        CHECK(outcome.contains("\n4 failures"));
    }
}

TEST_CASE("Kernels of codes run with the other kernels, their cases without engines under each "
          "tool, and states that leave a device have as long as a benchmark") {
    Toolkit const toolkit;
    toolkit.add_device();
    toolkit.build();
    toolkit.write("as/offload_states", "exec tail -f /dev/null");
    auto const outcome =
        toolkit.check("--phase run --only bits,engine,sanitizer --limit 30 --long-limit 2");
    INFO(outcome.output);
    check_order(outcome, {"test update_kernels", "test code_kernels", "test engine",
                          "memcheck of code_kernels", "racecheck of code_kernels"});
    CHECK_THAT(outcome.after("\ntest offload_states"), contains_text("stopped after 2 s"));
    CHECK(toolkit.starts_of("code_kernels") == 1);
    auto const runs = toolkit.lines_of("runs");
    for (std::string const tool : {"memcheck", "racecheck", "synccheck", "initcheck"}) {
        INFO(tool);
        CHECK(std::count_if(runs.begin(), runs.end(),
                            [&](std::string const& run) {
                                return run.find("--tool " + tool) != std::string::npos
                                       && run.find("/code_kernels Kernels *") != std::string::npos;
                            })
              == 1);
    }
}

TEST_CASE(
    "Each size of model is a row of a benchmark, the largest last, so that one that takes too "
    "long loses its own figures alone") {
    Toolkit const toolkit;
    toolkit.build();
    toolkit.write("as/kernels_bench",
                  "case $* in */1557611200/*) exec tail -f /dev/null ;; esac; echo all is well");
    auto const outcome = toolkit.check("--phase run --only bench --long-limit 2");
    INFO(outcome.output);
    check_order(outcome, {"benchmark kernels_bench, 124439808 elements",
                          "benchmark kernels_bench, 16287488 elements",
                          "benchmark step_bench, 124439808 elements",
                          "benchmark step_bench, 16287488 elements",
                          "benchmark step_bench, 1557611200 elements",
                          "benchmark kernels_bench, 1557611200 elements"});
    CHECK_THAT(outcome.after("\nbenchmark kernels_bench, 124439808 elements"),
               contains_text("passed"));
    CHECK_THAT(outcome.after("\nbenchmark kernels_bench, 1557611200 elements"),
               contains_text("stopped after 2 s"));
    CHECK(outcome.contains("\n1 failures"));
}

TEST_CASE("The check on a device takes NCCL from a folder that holds both header and library") {
    Toolkit const toolkit;
    toolkit.write("include/nccl.h", "");
    std::string const own = toolkit.root.string();
    CHECK_THAT(toolkit.build().after("\nNCCL "), !contains_text(own));
    toolkit.write("lib64/libnccl.so.2", "");
    CHECK_THAT(toolkit.build().after("\nNCCL "), contains_text(own));
    for (char const* const file : {"linked_nccl.cpp", "/tests/cuda/nccl_graph_test.cu",
                                   "/tests/cuda/nccl_engine_test.cu", "/nccl_bench.cu"}) {
        CHECK_THAT(toolkit.options_of(file), contains_text(own + "/lib64/libnccl.so.2"));
    }
    fs::rename(toolkit.root / "lib64/libnccl.so.2", toolkit.root / "lib64/libnccl.so.2.28.9");
    fs::create_symlink("libnccl.so.2.28.9", toolkit.root / "lib64/libnccl.so");
    CHECK_THAT(toolkit.build().after("\nNCCL "), contains_text(own));
}

TEST_CASE("Engines over NCCL run with two and with four ranks on a device, and without NCCL are "
          "not built") {
    Toolkit const toolkit;
    std::string const nccl = toolkit.build().after("\nNCCL ");
    bool const is_missing = nccl.find("missing") != std::string::npos; // or in /usr
    CHECK(toolkit.options_of("nccl_engine_test.cu").empty() == is_missing);
    CHECK(toolkit.options_of("nccl_bench.cu").empty() == is_missing);
    toolkit.write("include/nccl.h", "");
    toolkit.write("lib64/libnccl.so.2", "");
    toolkit.write("as/nccl_engine",
                  "echo nccl $NCCL_MULTI_RANK_GPU_ENABLE $CUDA_DEVICE_MAX_CONNECTIONS "
                  "$CUDA_MODULE_LOADING $ZERO_RANKS_PER_DEVICE >>"
                      + (toolkit.root / "runs").string());
    toolkit.build();
    auto const outcome = toolkit.check("--phase run --only engine,nccl");
    CHECK(outcome.status == 0);
    check_order(outcome,
                {"test linked_nccl", "test nccl_graph", "test nccl_engine, 2 ranks on a device",
                 "test nccl_engine, 4 ranks on a device", "benchmark nccl_bench"});
    CHECK(toolkit.starts_of("nccl_engine") == 2);
    auto const runs = toolkit.lines_of("runs");
    for (char const* const ranks : {"2", "4"}) {
        CHECK(std::count(runs.begin(), runs.end(), std::string("nccl 1 32 EAGER ") + ranks) == 1);
    }
}

TEST_CASE("The build ends with one archive, from which another machine runs without a compiler, "
          "kernels first and the oracle last, and prints the time of each phase") {
    Toolkit const toolkit;
    std::string const library = (toolkit.root / "libbenchmark.so.1").string();
    toolkit.write("libbenchmark.so.1", "");
    toolkit.write("bin/ldd", "#!/bin/sh\necho 'libbenchmark.so.1 => " + library + " (0x0)'\n");
    auto const build = toolkit.check("--phase build");
    INFO(build.output);
    check_order(build, {"build of gpu_probe ", "archive "});
    CHECK_THAT(build.after("\narchive "),
               contains_text("passed") && contains_text(" MiB of 64 (--archive-limit)"));
    auto const calls = toolkit.lines_of("calls"); // a version, a header, main.cpp, then programs
    auto const first = std::find_if(calls.begin(), calls.end(), [](std::string const& call) {
        return call.find("-arch=") != std::string::npos;
    });
    REQUIRE(first != calls.end());
    CHECK_THAT(*first, contains_text("gpu_probe.cu")); // a run begins with it
    CHECK_THAT(toolkit.options_of("/engine_test.cu"),
               contains_text("-DZERO_SOURCE_DIR=\".\"") && contains_text(" ./tests/cuda/"));

    fs::path const other = toolkit.root / "other";
    fs::create_directories(other);
    auto const unpacked = run_program("tar -xf " + (toolkit.root / "build.tar.xz").string() + " -C "
                                      + other.string() + " && find " + other.string());
    CHECK(unpacked.status == 0);
    CHECK(unpacked.contains("/build/gpu/element_kernels\n"));
    CHECK(unpacked.contains("/build/gpu/lib/libbenchmark.so.1\n"));
    CHECK_FALSE(unpacked.contains(".o\n"));
    fs::remove_all(toolkit.root / "build");
    fs::remove(toolkit.root / "calls");
    toolkit.add_device();
    auto const run = toolkit.check("--phase run --require-device", other.string());
    CHECK(run.status == 0);
    CHECK_FALSE(fs::exists(toolkit.root / "calls"));
    CHECK(toolkit.starts_of("graph") == 20);
    check_order(run, {probe,
                      "test element_kernels",
                      "benchmark kernels_bench",
                      "ncu of update",
                      "test engine",
                      "test loopback",
                      "test delays",
                      "test checkpoint",
                      "test graph, 20 times",
                      "benchmark step_bench",
                      "peer torch_adamw",
                      "test linked_nccl",
                      "cuda_train_gpt --verify, float16",
                      "memcheck of element_kernels",
                      "racecheck of update_kernels",
                      "test oracle",
                      "phase ",
                      "probe  ",
                      "bits of the kernels ",
                      "benchmarks of the kernels ",
                      "training example ",
                      "0 failures"});
    CHECK(fs::exists(other / "build/gpu/results/log/engine.run"));
}

TEST_CASE("An archive above its limit fails the build, and says both sizes") {
    Toolkit const toolkit;
    toolkit.write("include/nccl.h", "");
    toolkit.write("lib64/libnccl.so.2", "");
    // In place of the script that reduces the library: two MiB that xz cannot shorten.
    toolkit.write("bin/python3", "#!/bin/sh\nhead -c 2097152 /dev/urandom >\"$4\"\n");
    auto const outcome = toolkit.check("--phase build --arch sm_90 --carry-nccl --archive-limit 1");
    INFO(outcome.output);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.after("\narchive "),
               contains_text("FAILED") && contains_text(" 2.") && contains_text(" MiB of 1 ("));
    CHECK(toolkit.check("--phase build --arch native --carry-nccl").status == 3);
}

TEST_CASE("A check that requires a device ends at its probe without one, and fails where a program "
          "was skipped") {
    Toolkit const toolkit;
    SECTION("the probe") {
        toolkit.write("as/gpu_probe", "echo skipped: no CUDA device");
        auto const outcome = toolkit.check("--require-device");
        INFO(outcome.output);
        CHECK(outcome.status == 4);
        CHECK(!outcome.contains("\ntest engine"));
        CHECK(toolkit.check("--phase run").contains("\ntest engine"));
    }
    SECTION("a program") {
        toolkit.write("as/engine", "echo skipped: no CUDA device");
        auto const outcome = toolkit.check("--require-device");
        CHECK(outcome.status == 1);
        CHECK_THAT(outcome.after("\ntest engine"), contains_text("FAILED"));
        CHECK(toolkit.check("--phase run --again").status == 0);
    }
}

TEST_CASE("A program that hangs, one that crashes and one that is missing fail in their own rows, "
          "and the others run") {
    Toolkit const toolkit;
    toolkit.build();
    toolkit.write("as/update_kernels", "trap '' TERM; while :; do read -r _ <&1 || :; done");
    toolkit.write("as/engine", "kill -SEGV $$");
    fs::remove(toolkit.root / "build/loopback");
    auto const outcome = toolkit.check("--phase run --limit 1");
    INFO(outcome.output);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.after("\ntest update_kernels"), contains_text("stopped after 1 s"));
    CHECK_THAT(outcome.after("\ntest engine"), contains_text("ended by signal SEGV"));
    CHECK_THAT(outcome.after("\nprogram loopback"), contains_text("is missing"));
    CHECK_THAT(outcome.after("\ntest delays"), contains_text("passed"));
    CHECK(outcome.contains("\n3 failures"));
}

TEST_CASE("A call without time leaves all rows to the next one") {
    Toolkit const toolkit;
    toolkit.build();
    auto const late = toolkit.check("--phase run --call-seconds 0");
    INFO(late.output);
    CHECK(late.status == 5);
    CHECK_THAT(late.output, contains_text("left for the next call, which goes on there: " + probe
                                          + "; test cub;"));
    CHECK(toolkit.lines_of("runs").empty());
    CHECK(toolkit.check("--phase run").status == 0);
}

TEST_CASE("The next call goes on where one ended, and begins a row again that was cut off") {
    Toolkit const toolkit;
    toolkit.build();
    // The machine is taken back: the program kills the script, above `timeout` and a subshell.
    toolkit.write("as/delays",
                  "p=$PPID; for _ in 1 2; do p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status);"
                  " done; kill -KILL $p");
    auto const first = toolkit.check("--phase run");
    INFO(first.output);
    CHECK(first.contains("\ntest loopback"));
    CHECK(!first.contains("\ntest delays"));
    SECTION("once") {
        fs::remove(toolkit.root / "as/delays");
        auto const second = toolkit.check("--phase run");
        INFO(second.output);
        CHECK(second.status == 0);
        check_order(second, {probe, "test delays"});
        CHECK(!second.contains("\ntest loopback"));
        CHECK(toolkit.starts_of("loopback") == 1);
        auto const third = toolkit.check("--phase run --only engine --again");
        CHECK(third.status == 0);
        CHECK(toolkit.starts_of("loopback") == 2);
        CHECK(toolkit.starts_of("cub") == 1);
    }
    SECTION("twice: a row that ends two calls fails, and the third call goes on behind it") {
        CHECK(toolkit.check("--phase run").status != 0);
        auto const third = toolkit.check("--phase run");
        INFO(third.output);
        CHECK_THAT(third.after("\ntest delays"), contains_text("two calls ended while it ran"));
        CHECK_THAT(third.after("\ntest checkpoint"), contains_text("passed"));
        CHECK(toolkit.starts_of("delays") == 2);
    }
    SECTION("after another build everything runs again") {
        fs::remove(toolkit.root / "as/delays");
        toolkit.build();
        CHECK(toolkit.check("--phase run").status == 0);
        CHECK(toolkit.starts_of("loopback") == 2);
    }
}

TEST_CASE("A call that ends while a program runs leaves that row to the next call, once") {
    Toolkit const toolkit;
    toolkit.build();
    toolkit.write("as/engine", "exec tail -f /dev/null");
    // On a busy machine a call may have no second left for the row, and the next one runs it.
    auto const call = [&] {
        for (;;) {
            auto outcome = toolkit.check("--phase run --only engine --limit 600 --call-seconds 17");
            if (outcome.contains("\ntest engine")) {
                return outcome;
            }
        }
    };
    auto const first = call();
    INFO(first.output);
    CHECK(first.status == 5);
    CHECK_THAT(first.after("\ntest engine"), contains_text("the next one begins it again"));
    auto const second = call();
    CHECK(second.status == 1);
    CHECK_THAT(second.after("\ntest engine"), contains_text("stopped after"));
}

TEST_CASE("A run takes the parts that it is told, and finds libraries that the linker does not") {
    Toolkit const toolkit;
    toolkit.build();
    toolkit.write("bin/ldd", "#!/bin/sh\ncase $1 in */cuda_train_gpt) echo 'libcublas.so.13 => not "
                             "found'; echo 'libother.so.1 => not found' ;; esac\n");
    toolkit.write("lib64/libcublas.so.13", "");
    std::string const own = toolkit.root.string();
    toolkit.write("as/cuda_train_gpt", "echo $LD_LIBRARY_PATH >>" + own + "/path");
    auto const outcome = toolkit.check("--phase run --only train,oracle");
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    check_order(outcome,
                {"library libcublas.so.13", "cuda_train_gpt --verify, float32", "test oracle"});
    CHECK_THAT(outcome.after("\nlibrary libother.so.1"), contains_text("missing"));
    CHECK(toolkit.starts_of("engine") == 0);
    std::string const path = toolkit.lines_of("path").at(0);
    CHECK(path.rfind(own + "/build/lib:", 0) == 0);
    CHECK_THAT(path, contains_text(":" + own + "/lib64"));
}

TEST_CASE("The check on a device refuses values that it cannot use") {
    Toolkit const toolkit;
    for (auto const& [options, text] : std::vector<std::pair<std::string, std::string>>{
             {"--phase nothing", "--phase is 'build', 'run' or 'all'"},
             {"--only bits,nothing", "--only takes some of probe bits bench"},
             {"--call-seconds soon", "--call-seconds soon: a number of seconds"},
             {"--limit 0", "--limit 0: a number of seconds above 0"},
             {"--long-limit 1s", "--long-limit 1s: a number of seconds above 0"},
             {"--archive-limit 0", "--archive-limit 0: a number of MiB above 0"},
             {"--results ''", "--results needs a value"},
             {"--phase run --carry-nccl", "--carry-nccl belongs to --phase build"}}) {
        INFO(options);
        auto const outcome = toolkit.check(options);
        CHECK(outcome.status == 2);
        CHECK_THAT(outcome.output, contains_text(text));
    }
}

} // namespace zero::test::gpu_check_test
