#include "cuda/ptx/run_text.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <string>
#include <vector>

// Each check of the interpreter finds its fault in a small kernel, and nothing in the kernel
// without the fault.

namespace zero::test::checks_test {

namespace {

using namespace ptx;

/// Returns the findings for a block of 64 threads with a word each.
std::string found_in(std::string const& body, bool is_written = true) {
    Words memory(std::vector<u32>(64), is_written);
    return run_text(kernel_text(body), 64, memory).what;
}

/// Returns a text with one piece replaced, which it must contain.
std::string with(std::string text, std::string const& piece, std::string const& other) {
    std::size_t const at = text.find(piece);
    REQUIRE(at != std::string::npos);
    return text.replace(at, piece.size(), other);
}

/// Each thread writes its word of shared memory and reads that of a thread of another warp.
std::string const exchange = R"(
.shared .align 16 .b8 words[256];
mov.u32 %r2, words;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
bar.sync 0;
xor.b32 %r5, %r3, 128;
add.u32 %r6, %r2, %r5;
ld.shared.u32 %r7, [%r6];
st.global.u32 [%rd2], %r7;)";

/// The sum of a warp by shuffles.
std::string const shuffle = R"(
shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
add.u32 %r3, %r1, %r2;
st.global.u32 [%rd2], %r3;)";

} // namespace

TEST_CASE("A barrier that is left out is found as a race, in every order") {
    for (u64 seed = 0; seed < 4; ++seed) {
        WithSeed const with_seed(seed);
        CHECK(found_in(exchange) == "");
        std::string const found = found_in(with(exchange, "bar.sync 0;", ""));
        CAPTURE(found);
        CHECK_THAT(found, contains_text("race on shared memory between warps"));
    }
}

TEST_CASE("A race within a warp on shared memory is found, and a barrier of the warp ends none") {
    std::string const near = with(exchange, "%r3, 128", "%r3, 4");
    CHECK(found_in(near) == "");
    CHECK_THAT(found_in(with(near, "bar.sync 0;", "")),
               contains_text("race on shared memory within a warp"));
}

TEST_CASE("Two threads that write one word of global memory are found, atomic additions are not") {
    CHECK(found_in("st.global.u32 [%rd1], %r1;") == "race on global memory: write after write");
    CHECK(found_in("red.global.add.u32 [%rd1], %r1;") == "");
    CHECK(found_in("ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd2], %r2;")
          == "race on global memory: read after write");
}

TEST_CASE("Accesses outside of memory, or not aligned, are found and not done") {
    CHECK(found_in("st.global.u32 [%rd2+252], %r1;") == "global access outside every allocation");
    CHECK(found_in("st.global.v2.u32 [%rd1+252], {%r1, %r1};") == "misaligned access");
    CHECK(found_in("add.u64 %rd3, %rd1, 248; setp.ne.u32 %p1, %r1, 0; @%p1 ret; "
                   "st.global.u64 [%rd3], %rd3;")
          == "");
    CHECK_THAT(found_in(with(exchange, "words[256]", "words[252]")),
               contains_text("shared access out of bounds"));
    CHECK(found_in("ld.param.u64 %rd4, [k_0+8];") == "parameter out of bounds");
}

TEST_CASE("A read of memory that was never written is found, shared and global") {
    CHECK(found_in(with(exchange, "st.shared.u32 [%r4], %r1;", ""))
          == "read of uninitialised shared memory");
    std::string const load = "ld.global.u32 %r2, [%rd2];";
    CHECK(found_in(load, false) == "read of uninitialised global memory");
    CHECK(found_in(load) == "");
    CHECK(found_in("st.global.u32 [%rd2], %r1; " + load, false) == "");
}

TEST_CASE("A mask of one lane less, or of lanes that are gone, is found") {
    CHECK(found_in(shuffle) == "");
    CHECK_THAT(found_in(with(shuffle, ", -1;", ", 0x7fffffff;")),
               contains_text("lane is not in its own mask"));
    CHECK(found_in("setp.eq.u32 %p1, %r1, 5; @%p1 ret;" + shuffle)
          == "mask names lanes that have exited; shuffle reads a lane that does not take part");
    CHECK(found_in("mov.u32 %r9, %laneid; setp.eq.u32 %p1, %r9, 5; @%p1 bra OTHER;"
                   "bar.warp.sync -1; bra END; OTHER: bar.sync 0; END:")
          == "barrier that some threads have left out by exiting; lanes of a mask never reach the "
             "instruction");
    CHECK_THAT(found_in("selp.b32 %r8, -1, 0xffff, %p0;" + with(shuffle, ", -1;", ", %r1;")),
               contains_text("lanes name different masks"));
}

TEST_CASE("Threads at different barriers, or that leave one out, are found") {
    CHECK(found_in("setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B:")
          == "threads of a block wait at different barriers");
    CHECK(found_in("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;")
          == "barrier that some threads have left out by exiting");
}

TEST_CASE("A launch outside of the limits of the kernel or of a device is refused") {
    Words memory(std::vector<u32>(4));
    std::string const text = with(kernel_text(""), "\n{\n", "\n.maxntid 128, 1, 1\n{\n");
    CHECK(run_text(text, 128, memory).what == "");
    CHECK(run_text(text, 129, memory).what == "launch is refused");
    CHECK(run_text(text, 0, memory).what == "launch is refused");
    CHECK(run_text(text, 1, memory, {1, 70000, 1}).what == "launch is refused");
    CHECK(found_in("trap;") == "trap");
}

} // namespace zero::test::checks_test
