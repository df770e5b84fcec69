#include "cuda/mirror.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/host/kernels.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

// Norms: the device adds the same integers as the host, in any order of its blocks.

namespace zero::test::inspect_kernels_test {

namespace {

using Device = cuda::Backend;

/// Numbers of very different magnitudes, so that squares fall into windows and outside them.
template <class T>
std::vector<T> gradients(std::size_t n, std::uint32_t seed, bool is_finite) {
    auto values = kernel_inputs<T>(n, seed);
    std::mt19937 engine(seed + 1);
    for (std::size_t i = 0; i < n; ++i) {
        int const exponent = static_cast<int>(engine() % 240U) - 140;
        float const value =
            i / 4096 % 3 == 0 ? std::ldexp(to_float(values[i]), exponent) : to_float(values[i]);
        values[i] = from_float<T>(is_finite && !std::isfinite(value) ? 1.0F : value);
        if (is_finite && !std::isfinite(to_float(values[i]))) {
            values[i] = from_float<T>(2.0F);
        }
    }
    return values;
}

/// Lengths of consecutive slices from an odd start, so that most are not aligned.
std::vector<std::size_t> const lengths{1, 64, 63, 0, 8192, 8193, 100, 30000, 5, 262144, 7};

struct Found {
    double sum;
    std::int64_t count;
    std::int64_t first;
    friend bool operator==(Found const&, Found const&) = default;
};

Found found(ops::Inspection const& inspection) {
    return {inspection.sum_of_squares(), inspection.non_finite_count(),
            inspection.first_non_finite};
}

template <class A>
void compare_inspections(bool is_finite, std::size_t begin, std::size_t step) {
    cuda::OwnedStream const stream;
    std::size_t total = begin;
    for (std::size_t const length : lengths) {
        total += length + step;
    }
    Mirror<A> values(gradients<A>(total, 7, is_finite));
    ops::Inspection expected;
    std::vector<InspectSlice<A>> slices;
    std::size_t at = begin;
    std::int64_t index = 1000;
    for (std::size_t const length : lengths) {
        host::inspect(values.host(at), length, index, expected);
        slices.push_back({values.device(at), length, index});
        at += length + step;
        index += static_cast<std::int64_t>(length);
    }
    Device::SliceTable<InspectSlice<A>> const table(stream.get(), Device::default_memory(),
                                                    zero::detail::List<InspectSlice<A>>(slices));
    DeviceArray<ops::Inspection> const result(std::vector<ops::Inspection>(1));
    Device::inspect(stream.get(), table.all(), result.data());
    CHECK(found(on_host(result)[0]) == found(expected));
    CHECK((expected.non_finite_count() == 0) == is_finite);
}

} // namespace

TEMPLATE_TEST_CASE("A device inspects many slices to the bits of the host", "[cuda]", float,
                   bfloat16, float16) {
    if (skips_without_device()) {
        return;
    }
    for (bool const is_finite : {true, false}) {
        compare_inspections<TestType>(is_finite, 0, 0);
        compare_inspections<TestType>(is_finite, 3, 1);
    }
}

TEMPLATE_TEST_CASE("A device counts the zeros that the host counts", "[cuda]", float, bfloat16,
                   float16) {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    for (std::size_t const step : {0U, 1U}) {
        std::size_t total = step;
        for (std::size_t const length : lengths) {
            total += length + step;
        }
        auto numbers = gradients<TestType>(total, 11, false);
        for (std::size_t i = 0; i < total; i += 3) {
            numbers[i] = from_float<TestType>(i % 2 == 0 ? 0.0F : -0.0F);
        }
        Mirror<TestType> values(numbers);
        std::int64_t expected = 7;
        std::vector<InspectSlice<TestType>> slices;
        std::size_t at = step;
        for (std::size_t const length : lengths) {
            host::count_zeros(values.host(at), length, expected);
            slices.push_back({values.device(at), length, 0});
            at += length + step;
        }
        Device::SliceTable<InspectSlice<TestType>> const table(
            stream.get(), Device::default_memory(),
            zero::detail::List<InspectSlice<TestType>>(slices));
        DeviceArray<std::int64_t> const result(std::vector<std::int64_t>(1, 7));
        Device::count_zeros(stream.get(), table.all(), result.data());
        CHECK(on_host(result)[0] == expected);
        CHECK(expected > 100'000);
    }
}

TEST_CASE("Norms of single slices equal the host's, for every kind of norm", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    for (bool const is_finite : {true, false}) {
        for (NormKind const kind : {NormKind::l1, NormKind::l2, NormKind::infinity}) {
            std::size_t total = 0;
            for (std::size_t const length : lengths) {
                total += length;
            }
            Mirror<float> values(gradients<float>(total, 9, is_finite));
            std::vector<ops::NormSum> expected(3);
            std::vector<NormSlice<float>> slices;
            std::size_t at = 0;
            for (std::size_t i = 0; i < lengths.size(); ++i) {
                host::add_to_norm(kind, values.host(at), lengths[i], static_cast<std::int64_t>(at),
                                  expected[i % 3]);
                slices.push_back(
                    {{values.device(at), lengths[i], static_cast<std::int64_t>(at)}, i % 3});
                at += lengths[i];
            }
            Device::SliceTable<NormSlice<float>> const table(
                stream.get(), Device::default_memory(),
                zero::detail::List<NormSlice<float>>(slices));
            DeviceArray<ops::NormSum> const result(std::vector<ops::NormSum>(3));
            Device::add_to_norms(stream.get(), table.all(), kind, result.data());
            auto const seen = on_host(result);
            for (std::size_t norm = 0; norm < 3; ++norm) {
                CHECK(seen[norm].value(kind, 0.25) == expected[norm].value(kind, 0.25));
                CHECK(seen[norm].exact.non_finite_count()
                      == expected[norm].exact.non_finite_count());
            }
        }
    }
}

} // namespace zero::test::inspect_kernels_test
