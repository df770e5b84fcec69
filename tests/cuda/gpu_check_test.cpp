#include "support/catch.hpp"
#include "support/program.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

// Runs scripts/gpu_check.sh with a fake compiler that records its arguments and makes programs that
// only print.

namespace zero::test::gpu_check_test {

namespace {

namespace fs = std::filesystem;

constexpr char const* compiler = R"(#!/usr/bin/env bash
root=$(cd "$(dirname "$0")/.." && pwd)
printf '%s\n' "$*" >>"$root/calls"
while [ "$#" -gt 0 ]; do [ "$1" != -o ] || out=$2; shift; done
[ -n "${out:-}" ] || { cat >/dev/null; exit 0; }
case $out in
    *_bench) says=$root/benchmark_says ;;
    *gpu_probe) says=$root/probe_says ;;
    *) says=$root/others_say ;;
esac
printf '#!/bin/sh\ncat %s\n' "$says" >"$out"
if [[ $out == */update_kernels && -e $root/hangs ]]; then printf 'exec sleep 60\n' >>"$out"; fi
chmod +x "$out"
)";

/// A folder with the fake compiler; removed with this object.
class Toolkit {
public:
    Toolkit() {
        fs::remove_all(root);
        write("benchmark_says", "all is well\n");
        write("probe_says", "probe: a stub\n");
        write("others_say", "");
        write("bin/nvcc", compiler);
        for (char const* const missing : {"python3", "nvidia-smi"}) {
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

    [[nodiscard]] ProgramOutcome check(std::string const& options = {}) const {
        std::string const bin = (root / "bin").string();
        return run_program("PATH=" + bin + ":$PATH NVCC=" + bin + "/nvcc CXX=" + bin
                           + "/nvcc ZERO_JOBS=1 " ZERO_SOURCE_DIR
                             "/scripts/gpu_check.sh --no-sanitizer --build "
                           + (root / "build").string() + " " + options + " </dev/null");
    }

    /// Returns the arguments with which `file` was compiled.
    [[nodiscard]] std::string options_of(std::string const& file) const {
        std::ifstream calls(root / "calls");
        for (std::string call; std::getline(calls, call);) {
            if (call.find(file) != std::string::npos) {
                return call;
            }
        }
        return {};
    }

    fs::path root = fs::temp_directory_path() / ("zero_gpu_check_" + std::to_string(::getpid()));
};

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
        toolkit.write("benchmark_says",
                      "update/cuda ERROR OCCURRED: 'out of memory'\nupdate/cuda_median 1 ms\n");
        auto const outcome = toolkit.check();
        CHECK(outcome.status != 0);
        CHECK_THAT(outcome.after("\nbenchmark kernels_bench"), contains_text("FAILED"));
        CHECK_THAT(outcome.after("\nbenchmark kernels_bench"), contains_text("out of memory"));
    }
    SECTION("no device") {
        toolkit.write("benchmark_says", "update/cuda ERROR OCCURRED: 'skipped: no CUDA device'\n");
        auto const outcome = toolkit.check();
        CHECK(outcome.status == 0);
        CHECK_THAT(outcome.after("\nbenchmark kernels_bench"), contains_text("skipped"));
    }
}

TEST_CASE("The check on a device takes NCCL from a folder that holds both header and library") {
    Toolkit const toolkit;
    toolkit.write("include/nccl.h", "");
    std::string const own = toolkit.root.string();
    CHECK_THAT(toolkit.check().after("\nNCCL "), !contains_text(own));
    toolkit.write("lib64/libnccl.so.2", "");
    CHECK_THAT(toolkit.check().after("\nNCCL "), contains_text(own));
    for (char const* const file : {"linked_nccl.cpp", "/tests/cuda/nccl_graph_test.cu"}) {
        CHECK_THAT(toolkit.options_of(file), contains_text(own + "/lib64/libnccl.so.2"));
    }
    fs::rename(toolkit.root / "lib64/libnccl.so.2", toolkit.root / "lib64/libnccl.so.2.28.9");
    fs::create_symlink("libnccl.so.2.28.9", toolkit.root / "lib64/libnccl.so");
    CHECK_THAT(toolkit.check().after("\nNCCL "), contains_text(own));
}

TEST_CASE(
    "The check on a device builds in one call and runs in another one, which compiles nothing "
    "and prints the time of each phase") {
    Toolkit const toolkit;
    auto const build = toolkit.check("--phase build");
    INFO(build.output);
    CHECK(build.status == 0);
    CHECK_THAT(build.after("\nbuild of gpu_probe"), contains_text("passed"));
    CHECK(!build.contains("\ntest engine"));
    CHECK_THAT(toolkit.options_of("/engine_test.cu"),
               contains_text("-DZERO_SOURCE_DIR=\".\"") && contains_text(" ./tests/cuda/"));
    fs::remove(toolkit.root / "calls");
    auto const run = toolkit.check("--phase run --require-device");
    INFO(run.output);
    CHECK(run.status == 0);
    CHECK_FALSE(fs::exists(toolkit.root / "calls"));
    std::size_t at = 0; // the checks that find most errors in the least time come first
    for (std::string const row :
         {"\nprobe: device, memory pools, capture", "\ntest element_kernels", "\ntest engine",
          "\ntest graph, 20 times", "\nbenchmark kernels_bench",
          "\ncuda_train_gpt --verify, float16", "\ntest oracle", "\nphase ", "\nprobe  ",
          "\nbits of the kernels ", "\nbenchmarks ", "\n0 failures"}) {
        INFO(row);
        std::size_t const found = run.output.find(row);
        CHECK(found != std::string::npos);
        CHECK(found > at);
        at = found == std::string::npos ? at : found;
    }
}

TEST_CASE("A check that requires a device ends at its probe without one, and fails where a program "
          "was skipped") {
    Toolkit const toolkit;
    SECTION("the probe") {
        toolkit.write("probe_says", "skipped: no CUDA device\n");
        auto const outcome = toolkit.check("--require-device");
        INFO(outcome.output);
        CHECK(outcome.status == 4);
        CHECK_THAT(outcome.after("\nprobe: device, memory pools, capture"),
                   contains_text("FAILED"));
        CHECK(!outcome.contains("\ntest engine"));
        auto const lenient = toolkit.check();
        CHECK(lenient.status == 0);
        CHECK(lenient.contains("\ntest engine"));
    }
    SECTION("a program") {
        toolkit.write("others_say", "skipped: no CUDA device\n");
        auto const outcome = toolkit.check("--require-device");
        CHECK(outcome.status == 1);
        CHECK_THAT(outcome.after("\ntest engine"), contains_text("FAILED"));
        CHECK(toolkit.check().status == 0);
    }
}

TEST_CASE("A check on a device stops a program at its limit, leaves out what begins after the "
          "deadline, and fails") {
    Toolkit const toolkit;
    auto const late = toolkit.check("--deadline 0");
    INFO(late.output);
    CHECK(late.status == 1);
    CHECK_THAT(late.after("\ntest engine"), contains_text("left out"));
    toolkit.write("hangs", "");
    auto const outcome = toolkit.check("--limit 1");
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.after("\ntest update_kernels"), contains_text("stopped after 1 s"));
    CHECK_THAT(outcome.after("\ntest engine"), contains_text("passed"));
    CHECK(outcome.contains("\n1 failures"));
    CHECK(toolkit.check("--phase nothing").status == 2);
}

} // namespace zero::test::gpu_check_test
