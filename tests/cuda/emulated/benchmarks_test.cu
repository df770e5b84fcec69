#include "cuda/device.hpp"
#include "cuda/device_timer.cuh"
#include "cuda/passes.cuh"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

// The passes that the device benchmarks time, on a small model, and the timer of these benchmarks.

namespace zero::test::benchmarks_test {

namespace {

std::vector<std::size_t> const sizes{4096 * 3 + 5, 7, 64, 1000};
std::size_t const elements = 12293 + 7 + 64 + 1000;

template <class T>
std::vector<T> values_of(T* memory, std::size_t count) {
    return on_host(std::span<T>(memory, count));
}

template <class T>
bool is_nan(T* memory, std::size_t count) {
    auto const values = values_of(memory, count);
    return std::all_of(values.begin(), values.end(),
                       [](T value) { return std::isnan(to_float(value)); });
}

} // namespace

TEST_CASE("The benchmarks of a device run for 16 million, 124 million and 1.5 thousand million "
          "elements, small ones 20 times in a measurement",
          "[cuda]") {
    std::vector<std::size_t> seen;
    std::vector<std::size_t> launches;
    for (auto const& model : bench::models()) {
        seen.push_back(bench::elements_of(model));
        launches.push_back(bench::launches_for(seen.back()));
        CHECK(bench::model_of(seen.back()) == model);
    }
    CHECK(seen == std::vector<std::size_t>{16'287'488, 124'439'808, 1'557'611'200});
    CHECK(launches == std::vector<std::size_t>{20, 1, 1});
}

TEST_CASE("The clock of the benchmarks flushes caches by reading before each of the launches that "
          "it is told to time",
          "[cuda]") {
    cuda::OwnedStream const stream;
    bench::DeviceTimer timer(4096);
    std::size_t const fills = emulated::fills;
    std::size_t const kernels = emulated::kernels;
    std::size_t calls = 0;
    CHECK(timer.seconds(stream.get(), 20, [&](cudaStream_t on) {
        CHECK(on == stream.get());
        ++calls;
        CHECK(emulated::kernels == kernels + calls);
    }) >= 0.0);
    CHECK(calls == 20);
    CHECK(emulated::fills == fills);
    CHECK(emulated::kernels == kernels + 20);
    CHECK(timer.seconds(stream.get(), 1, [](cudaStream_t) {}) >= 0.0);
}

TEST_CASE("The random data of the benchmarks is normal, and constant data is recognised",
          "[cuda]") {
    bench::DeviceArray<float> const array(elements);
    CHECK(bench::is_constant({array.data(), elements * sizeof(float)})); // NaN, before it is filled
    bench::fill_normal(array.data(), elements, 2.0F);
    CHECK_FALSE(bench::is_constant({array.data(), elements * sizeof(float)}));
    double sum = 0.0;
    double squares = 0.0;
    double within_one_deviation = 0.0;
    for (float const value : values_of(array.data(), elements)) {
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
        within_one_deviation += std::abs(value) < 2.0F ? 1.0 : 0.0;
    }
    auto const count = static_cast<double>(elements);
    CHECK(std::abs(sum / count) < 0.06); // about three standard errors of 13364 samples
    CHECK(squares / count == Approx(4.0).epsilon(0.04));
    CHECK(within_one_deviation / count == Approx(0.6827).epsilon(0.02));
}

TEST_CASE("The benchmarks' passes read random data, write over NaN and move what they say, aligned "
          "or one element behind",
          "[cuda]") {
    cuda::OwnedStream const stream;
    auto const check_inputs = [](std::vector<bench::TimedInput> const& inputs) {
        for (bench::TimedInput const& input : inputs) {
            CHECK(input.bytes % elements == 0);
            CHECK_FALSE(bench::is_constant(input));
        }
    };
    std::vector<float> masters[2];
    for (std::size_t const begin : {std::size_t{0}, std::size_t{1}}) {
        CAPTURE(begin);
        bench::FlattenPass<float, float, true> const flatten(sizes, begin);
        check_inputs(flatten.inputs());
        CHECK(is_nan(flatten.bucket(), elements));
        flatten.enqueue(stream.get());
        CHECK(values_of(flatten.bucket(), elements)
              == values_of(flatten.tensors() + begin, elements));
        CHECK(flatten.moved_bytes() == 8 * elements);
        bench::FlattenPass<float, bfloat16, false> const unflatten(sizes, begin);
        check_inputs(unflatten.inputs());
        CHECK(is_nan(unflatten.tensors(), begin + elements));
        unflatten.enqueue(stream.get());
        CHECK(to_float(values_of(unflatten.bucket(), elements).back())
              == values_of(unflatten.tensors() + begin, elements).back());
        CHECK(unflatten.moved_bytes() == 6 * elements);

        bench::NormPass<float> const norm(sizes, begin);
        check_inputs(norm.inputs());
        norm.enqueue(stream.get());
        auto const inspection = values_of(norm.result(), 1)[0];
        double squares = 0.0;
        for (float const gradient : values_of(norm.gradients() + begin, elements)) {
            squares += static_cast<double>(gradient) * static_cast<double>(gradient);
        }
        CHECK(squares > 0.0);
        CHECK(inspection.sum_of_squares() == Approx(squares));
        CHECK(inspection.non_finite_count() == 0);
        CHECK(norm.moved_bytes() == 4 * elements);

        bench::UpdatePass const update(sizes, begin);
        check_inputs(update.inputs());
        CHECK(update.inputs().size() == 4);
        CHECK(is_nan(update.parameters(), elements));
        auto const first = values_of(update.first_moments(), elements);
        auto const second = values_of(update.second_moments(), elements);
        CHECK(values_of(update.gradients() + begin, elements) == first);
        CHECK(std::equal(first.begin(), first.end(), second.begin(),
                         [](float m, float v) { return v == m * m; }));
        auto const before = values_of(update.masters(), elements);
        update.enqueue(stream.get());
        masters[begin] = values_of(update.masters(), elements);
        auto const parameters = values_of(update.parameters(), elements);
        bool is_stepped = true;
        for (std::size_t i = 0; i < elements; ++i) {
            is_stepped =
                is_stepped && masters[begin][i] != before[i]
                && to_float(parameters[i]) == to_float(from_float<bfloat16>(masters[begin][i]));
        }
        CHECK(is_stepped);
        CHECK(update.moved_bytes() == 30 * elements);
    }
    CHECK(masters[0] == masters[1]);

    bench::SumPass<float> const sum(sizes);
    check_inputs(sum.inputs());
    CHECK(is_nan(sum.sums(), elements));
    sum.enqueue(stream.get());
    auto const gradients = values_of(sum.gradients(), 2 * elements);
    auto const sums = values_of(sum.sums(), elements);
    CHECK(sums.front() == gradients.front() + gradients[elements]);
    CHECK(sums.back() == gradients[elements - 1] + gradients.back());
    CHECK(sum.moved_bytes() == 12 * elements);

    bench::GradientCodesPass<Int4Blocks, true> const encoded(sizes);
    check_inputs(encoded.inputs());
    auto const errors = values_of(encoded.errors(), elements);
    encoded.enqueue(stream.get());
    CHECK(values_of(encoded.errors(), elements) != errors);
    CHECK(encoded.moved_bytes() == 12 * elements + elements / 64 * 34);
    bench::GradientCodesPass<Int8Blocks, false> const added(sizes);
    CHECK(is_nan(added.sums(), 1));
    added.enqueue(stream.get());
    float largest = 0.0F;
    for (float const value : values_of(added.gradients(), 64)) {
        largest = std::max(largest, std::abs(value));
    }
    float const expected = 4.0F * values_of(added.gradients(), 1)[0];
    float const error = std::abs(values_of(added.sums(), 1)[0] - expected);
    CHECK(largest > 0.0F);
    CHECK(error <= 4.001F * Int8Blocks::error_bound(largest));
    CHECK(added.moved_bytes() == 4 * elements + elements / 64 * 264);
}

} // namespace zero::test::benchmarks_test
