#include "cuda/device.hpp"

#include <zero/cuda/detail/kernels/exact_run.cuh>
#include <zero/cuda/detail/kernels/launch.cuh>
#include <zero/cuda/owned_stream.hpp>
#include <zero/ops/exact_sum.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

// Runs of packs at their bounds: a run takes what it can add without rounding, and nothing else.

namespace zero::test::exact_run_test {

namespace {

namespace kernels = cuda::detail;
using kernels::pack_elements;

constexpr unsigned threads = 32;
constexpr unsigned most_packs = 32; // a run of 256 elements

/// Each thread adds the packs of its row until the run does not take one.
template <NormKind kind>
__global__ void run_kernel(float const* rows, unsigned packs, unsigned* taken,
                           ops::Inspection* result) {
    using Run = kernels::ExactRun<kind>;
    __shared__ kernels::BlockDigits block;
    block.clear();
    __syncthreads();
    kernels::ThreadSum sum(block);
    kernels::ThreadSum rest(block);
    Run run;
    unsigned count = 0;
    for (; count < packs; ++count) {
        float x[pack_elements];
        for (unsigned i = 0; i < pack_elements; ++i) {
            x[i] = rows[(threadIdx.x * packs + count) * pack_elements + i];
        }
        typename Run::Range const range(x);
        if (count == 0) {
            run.begin(range);
        }
        if (!run.takes(range)) {
            break;
        }
        run.add(x);
    }
    taken[threadIdx.x] = count;
    run.end(sum, rest);
    sum.flush();
    rest.flush();
    __syncthreads();
    block.move_to(*result);
}

struct Ran {
    std::vector<unsigned> taken; ///< packs of each thread
    bool is_exact;               ///< whether the sum is that of the packs that were taken
};

/// @param rows packs of each thread
template <NormKind kind>
Ran run(std::vector<std::vector<float>> const& rows) {
    REQUIRE(rows.size() == threads);
    auto const packs = static_cast<unsigned>(rows[0].size() / pack_elements);
    std::vector<float> all;
    for (auto const& row : rows) {
        REQUIRE(row.size() == std::size_t{packs} * pack_elements);
        all.insert(all.end(), row.begin(), row.end());
    }
    cuda::OwnedStream const stream;
    DeviceArray<float> const in(all);
    DeviceArray<unsigned> const taken(threads);
    DeviceArray<ops::Inspection> const out(std::vector<ops::Inspection>(1));
    kernels::launch(stream.get(), 1, threads, run_kernel<kind>, in.data(), packs, taken.data(),
                    out.data());
    Ran ran{on_host(taken), true};
    ops::Inspection result = on_host(out)[0];
    result.carry();
    ops::Inspection expected;
    for (unsigned thread = 0; thread < threads; ++thread) {
        for (std::size_t i = 0; i < ran.taken[thread] * pack_elements; ++i) {
            auto const x = static_cast<double>(rows[thread][i]);
            expected.add(kind == NormKind::l1 ? std::abs(x) : x * x);
        }
    }
    expected.carry();
    for (std::size_t i = 0; i < ops::Inspection::count; ++i) {
        ran.is_exact = ran.is_exact && result.sums[i] == expected.sums[i];
    }
    return ran;
}

/// A pack of magnitudes with all bits set: one of exponent `largest`, the others of `smallest`.
std::vector<float> pack_of(int largest, int smallest) {
    std::vector<float> pack(pack_elements, std::ldexp(0x1.fffffep0F, smallest));
    pack[3] = -std::ldexp(0x1.fffffep0F, largest);
    return pack;
}

/// The same row for each thread: a first pack, then others of one kind.
std::vector<std::vector<float>> rows_of(std::vector<float> const& first,
                                        std::vector<float> const& others, unsigned packs) {
    std::vector<float> row = first;
    for (unsigned i = 1; i < packs; ++i) {
        row.insert(row.end(), others.begin(), others.end());
    }
    return std::vector<std::vector<float>>(threads, row);
}

} // namespace

TEST_CASE("A run of 256 squares or magnitudes at both ends of the widest range is exact",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const check = [&]<NormKind kind>(int widest, int largest) {
        CAPTURE(kind, largest);
        auto const pack = pack_of(largest, largest - widest);
        Ran const ran = run<kind>(rows_of(pack, pack, most_packs));
        CHECK(ran.taken == std::vector<unsigned>(threads, most_packs));
        CHECK(ran.is_exact);
        auto const all_large = pack_of(largest, largest);
        CHECK(run<kind>(rows_of(pack, all_large, most_packs)).is_exact);
        auto const all_small = pack_of(largest - widest, largest - widest);
        CHECK(run<kind>(rows_of(pack, all_small, most_packs)).is_exact);
        if (largest - widest > -126) {
            auto const wider = pack_of(largest, largest - widest - 1);
            CHECK(run<kind>(rows_of(wider, wider, 1)).taken == std::vector<unsigned>(threads, 0));
        }
    };
    for (int const largest : {127, 100, 0, -100, -106}) {
        check.operator()<NormKind::l2>(20, largest);
    }
    for (int const largest : {127, 100, 0, -100, -105}) {
        check.operator()<NormKind::l1>(21, largest);
    }
}

TEST_CASE("Exponents may rise by three after the first pack, and the range ends below the highest",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const taken = [](int larger, int smaller) {
        return run<NormKind::l2>(rows_of(pack_of(5, 5), pack_of(larger, smaller), 4)).taken[0];
    };
    CHECK(taken(8, 5) == 4);
    CHECK(taken(9, 5) == 1);
    CHECK(taken(5, 8 - 20) == 4);
    CHECK(taken(5, 8 - 21) == 1);
    CHECK(run<NormKind::l2>(rows_of(pack_of(5, 5), pack_of(8, 8 - 20), most_packs)).is_exact);

    auto least = pack_of(5, 5);
    least[0] = 0x1p-12F; // the smallest number of the range
    CHECK(run<NormKind::l2>(rows_of(pack_of(5, 5), least, 2)).taken[0] == 2);
    least[0] = std::nextafter(least[0], 0.0F);
    CHECK(run<NormKind::l2>(rows_of(pack_of(5, 5), least, 2)).taken[0] == 1);
}

TEST_CASE("A run does not begin with subnormal numbers alone, and takes them beside larger ones",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    std::vector<float> subnormal(pack_elements, 0x1p-149F);
    CHECK(run<NormKind::l2>(rows_of(subnormal, subnormal, 1)).taken[0] == 0);
    auto mixed = subnormal;
    mixed[0] = 0x1.fffffep-108F; // 20 above an exponent field of 0
    mixed[1] = 0x1.fffffcp-127F;
    Ran const ran = run<NormKind::l2>(rows_of(mixed, subnormal, most_packs));
    CHECK(ran.taken[0] == most_packs);
    CHECK(ran.is_exact);
}

TEST_CASE("A run does not take infinity, a NaN or, before it begins, anything", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    std::vector<float> const ones(pack_elements, 1.0F);
    for (float const bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
        auto pack = ones;
        pack[7] = bad;
        CHECK(run<NormKind::l2>(rows_of(ones, pack, 2)).taken[0] == 1);
        CHECK(run<NormKind::l1>(rows_of(ones, pack, 2)).taken[0] == 1);
    }
    std::vector<float> const large(pack_elements, std::ldexp(1.0F, 127));
    auto infinite = large;
    infinite[0] = HUGE_VALF;
    CHECK(run<NormKind::l2>(rows_of(large, infinite, 2)).taken[0] == 1);
    std::vector<float> const zeros(pack_elements, 0.0F);
    CHECK(run<NormKind::l2>(rows_of(zeros, ones, 2)).taken[0] == 0);
}

TEST_CASE("Threads of a warp end their runs alone, with sums of their own", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    std::vector<std::vector<float>> rows;
    for (unsigned thread = 0; thread < threads; ++thread) {
        int const exponent = static_cast<int>(thread * 7 % 60) - 30;
        auto row = pack_of(exponent, exponent - static_cast<int>(thread % 21));
        auto const second = pack_of(exponent + static_cast<int>(thread % 5), exponent);
        row.insert(row.end(), second.begin(), second.end());
        rows.push_back(row);
    }
    Ran const ran = run<NormKind::l2>(rows);
    CHECK(ran.is_exact);
    for (unsigned thread = 0; thread < threads; ++thread) {
        unsigned const room = std::min(3U, 20 - thread % 21); // above the first pack
        CHECK(ran.taken[thread] == (thread % 5 <= room ? 2U : 1U));
    }
}

} // namespace zero::test::exact_run_test
