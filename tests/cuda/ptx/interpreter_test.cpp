#include "cuda/ptx/run_text.hpp"
#include "support/catch.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

// The interpreter of PTX computes what the manual says.

namespace zero::test::interpreter_test {

namespace {

using namespace ptx;

/// Returns %r9 of one thread after a body of straight code.
u32 result_of(std::string const& body) {
    Words memory({0});
    Found const found = run_text(kernel_text(body + "\nst.global.u32 [%rd1], %r9;"), 1, memory);
    CHECK(found.what == "");
    return memory.values()[0];
}

} // namespace

TEST_CASE("Integer instructions of PTX give the results of the manual") {
    CHECK(result_of("mul.hi.u32 %r9, 0xffffffff, 0xffffffff;") == 0xfffffffeU);
    CHECK(result_of("mul.hi.s32 %r9, -1, 5;") == 0xffffffffU);
    CHECK(result_of("mul.wide.s32 %rd5, -3, 7; cvt.u32.u64 %r9, %rd5;") == static_cast<u32>(-21));
    CHECK(result_of("mad.lo.s32 %r9, 3, 4, 5;") == 17);
    CHECK(result_of("div.u32 %r9, 7, 0;") == 0xffffffffU);
    CHECK(result_of("rem.s32 %r9, -7, 3;") == static_cast<u32>(-1));
    CHECK(result_of("min.s32 %r9, -1, 1;") == 0xffffffffU);
    CHECK(result_of("min.u32 %r9, -1, 1;") == 1);
    CHECK(result_of("shl.b32 %r9, 1, 32;") == 0);
    CHECK(result_of("shr.s32 %r9, -8, 40;") == 0xffffffffU);
    CHECK(result_of("shf.l.wrap.b32 %r9, 0x80000000, 1, 33;") == 3);
    CHECK(result_of("shf.r.clamp.b32 %r9, 1, 2, 32;") == 2);
    CHECK(result_of("lop3.b32 %r9, 12, 10, 6, 0x96;") == (12U ^ 10U ^ 6U));
    CHECK(result_of("prmt.b32 %r9, 0x44332211, 0x88776655, 0x70f1;") == 0x8811ff22U);
    CHECK(result_of("bfe.s32 %r9, 0xf0, 4, 4;") == 0xffffffffU);
    CHECK(result_of("bfi.b32 %r9, 0x3, 0xff00, 6, 4;") == 0xfcc0U);
    CHECK(result_of("popc.b32 %r9, 0xf0f0;") == 8);
    CHECK(result_of("clz.b32 %r9, 1;") == 31);
    CHECK(result_of("brev.b32 %r9, 1;") == 0x80000000U);
    CHECK(result_of("mov.b32 {%h1, %h2}, 0x12345678; mov.b32 %r9, {%h2, %h1};") == 0x56781234U);
    CHECK(result_of("setp.lt.u32 %p1|%p2, 1, 2; selp.b32 %r9, 5, 6, %p2;") == 6);
    CHECK(result_of("mov.u32 %r9, 1; setp.eq.s32 %p1, 1, 2; @%p1 mov.u32 %r9, 2;") == 1);
    CHECK(result_of("mov.u32 %r9, 1; setp.eq.s32 %p1, 1, 2; @!%p1 mov.u32 %r9, 2;") == 2);
}

TEST_CASE("Numbers of PTX are rounded once, and every NaN of arithmetic is the same") {
    CHECK(result_of("fma.rn.f32 %r9, 0f3F800001, 0f3F800001, 0fBF800002;") == 0x28800000U);
    CHECK(result_of("mul.rn.ftz.f32 %r9, 0f00800000, 0f3F000000;") == 0);
    CHECK(result_of("mul.rn.f32 %r9, 0f00800000, 0f3F000000;") == 0x00400000U);
    CHECK(result_of("sub.rn.f32 %r9, 0f7F800000, 0f7F800000;") == 0x7fffffffU);
    CHECK(result_of("max.f32 %r9, 0fFFC00000, 0f3F800000;") == 0x3f800000U);
    CHECK(result_of("min.f32 %r9, 0f00000000, 0f80000000;") == 0x80000000U);
    CHECK(result_of("cvt.rzi.s32.f32 %r9, 0fC0200000;") == static_cast<u32>(-2));
    CHECK(result_of("cvt.rzi.u32.f32 %r9, 0fC0200000;") == 0);
    CHECK(result_of("cvt.rn.bf16x2.f32 %r9, 0f3F800000, 0f40000000;") == 0x3f804000U);
    CHECK(result_of("cvt.s32.s8 %r9, 0x80;") == 0xffffff80U);
}

TEST_CASE("The 16-bit types of the interpreter are those of the library") {
    std::mt19937 random(1);
    int wrong = 0;
    for (int i = 0; i < 200000; ++i) {
        auto const x = std::bit_cast<float>(static_cast<u32>(random()));
        if (x != x) {
            continue;
        }
        wrong += rounded_to(bfloat_format, x) == from_float<bfloat16>(x).bits ? 0 : 1;
        wrong += rounded_to(half_format, x) == from_float<float16>(x).bits ? 0 : 1;
        auto const near =
            std::ldexp(1.0F + x / 0x1p127F / 8.0F, static_cast<int>(random() % 44) - 27);
        wrong += rounded_to(half_format, near) == from_float<float16>(near).bits ? 0 : 1;
    }
    for (u32 bits = 0; bits < 1U << 16U; ++bits) {
        float16 number;
        number.bits = static_cast<u16>(bits);
        float const expected = to_float(number);
        float const found = float_of_half(number.bits);
        wrong += expected != expected ? (found != found ? 0 : 1) : (found == expected ? 0 : 1);
    }
    CHECK(wrong == 0);
}

TEST_CASE("Lanes that leave a loop at different times meet again, in every order of blocks, warps "
          "and lanes") {
    // Each thread counts to its number, then the warp counts its lanes; shared memory turns a
    // block.
    std::string const text = kernel_text(R"(
.shared .align 4 .b8 buffer[512];
mov.u32 %r2, 0;
LOOP:
setp.ge.u32 %p1, %r2, %r1;
@%p1 bra DONE;
add.u32 %r2, %r2, 1;
bra LOOP;
DONE:
bar.warp.sync -1;
vote.sync.ballot.b32 %r3, %p1, -1;
popc.b32 %r3, %r3;
add.u32 %r2, %r2, %r3;
mov.u32 %r4, buffer;
shl.b32 %r5, %r1, 2;
add.u32 %r6, %r4, %r5;
st.shared.u32 [%r6], %r2;
bar.sync 0;
sub.u32 %r7, 127, %r1;
shl.b32 %r7, %r7, 2;
add.u32 %r7, %r4, %r7;
ld.shared.u32 %r8, [%r7];
mov.u32 %r10, %ctaid.x;
shl.b32 %r10, %r10, 9;
cvt.u64.u32 %rd3, %r10;
add.u64 %rd2, %rd2, %rd3;
st.global.u32 [%rd2], %r8;)");
    std::vector<u32> expected(4 * 128);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = 127 - static_cast<u32>(i % 128) + 32;
    }
    for (u64 seed = 0; seed < 8; ++seed) {
        WithSeed const with(seed);
        Words memory(std::vector<u32>(4 * 128), false);
        CAPTURE(seed);
        CHECK(run_text(text, 128, memory, {4}).what == "");
        CHECK(memory.values() == expected);
    }
}

TEST_CASE("Shuffles, reductions and atomic additions of a warp take every lane once") {
    std::string const text = kernel_text(R"(
shfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;
shfl.sync.down.b32 %r3|%p2, %r1, 16, 31, -1;
redux.sync.add.u32 %r4, %r1, -1;
atom.global.add.u32 %r5, [%rd1], %r1;
selp.b32 %r3, %r3, 0, %p2;
mul.lo.u32 %r2, %r2, 10000;
mad.lo.u32 %r2, %r3, 1000000, %r2;
add.u32 %r2, %r2, %r4;
st.global.u32 [%rd2+4], %r2;)");
    Words memory(std::vector<u32>(33));
    CHECK(run_text(text, 32, memory).what == "");
    CHECK(memory.values()[0] == 496);
    for (u32 lane = 0; lane < 32; ++lane) {
        CHECK(memory.values()[1 + lane]
              == (lane < 16 ? lane + 16 : 0) * 1000000 + (lane ^ 1U) * 10000 + 496);
    }
}

TEST_CASE("A function gets its parameters in local memory and returns its result") {
    std::string const functions = R"(
.func (.param .b32 result) twice(.param .b32 twice_0)
{
.reg .b32 %r<3>;
ld.param.u32 %r1, [twice_0];
add.u32 %r2, %r1, %r1;
st.param.b32 [result], %r2;
ret;
}
)";
    std::string const text = kernel_text(R"(
{
.param .b32 in;
.param .b32 out;
st.param.b32 [in], %r1;
call.uni (out), twice, (in);
ld.param.b32 %r2, [out];
}
st.global.u32 [%rd2], %r2;)",
                                         functions);
    Words memory(std::vector<u32>(40));
    CHECK(run_text(text, 40, memory).what == "");
    CHECK(memory.values()[39] == 78);
}

TEST_CASE("An instruction that is not known, or a modifier of one, is refused by name") {
    for (std::string const instruction :
         {"wgmma.fence.sync.aligned", "add.sat.s32", "add.rz.f32", "mul.rn.f16", "cvt.rz.f32.f64",
          "ld.global.v2.f16x3", "cp.async.wait_all"}) {
        Words memory({0});
        Found const found = run_text(kernel_text(instruction + " %r1, %r1, %r1;"), 1, memory);
        CAPTURE(instruction);
        CHECK(found.what == "kernel cannot run");
        CHECK_THAT(found.details, contains_text("unknown instruction " + instruction));
    }
    Words memory({0});
    CHECK_THAT(run_text(kernel_text("add.u32 %r1, %r1, %r99;"), 1, memory).details,
               contains_text("unknown register %r99"));
    CHECK_THAT(run_text(kernel_text("bra NOWHERE;"), 1, memory).details,
               contains_text("unknown label NOWHERE"));
}

} // namespace zero::test::interpreter_test
