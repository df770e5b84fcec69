#include "cuda/device.hpp"
#include "cuda/device_timer.cuh"
#include "cuda/passes.cuh"

#include <algorithm>
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

} // namespace

TEST_CASE("The benchmarks of a device run for 16 million, 124 million and 1.5 thousand million "
          "elements, small ones 20 times between two events",
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

TEST_CASE("The clock of the benchmarks flushes caches by reading, and launches as often as it is "
          "told",
          "[cuda]") {
    cuda::OwnedStream const stream;
    bench::DeviceTimer timer(4096);
    std::size_t const fills = emulated::fills;
    std::size_t const kernels = emulated::kernels;
    std::size_t calls = 0;
    CHECK(timer.seconds(stream.get(), 20, [&](cudaStream_t on) {
        CHECK(on == stream.get());
        ++calls;
    }) >= 0.0);
    CHECK(calls == 20);
    CHECK(emulated::fills == fills);
    CHECK(emulated::kernels == kernels + 1);
}

TEST_CASE("The benchmarks' passes move what they say, aligned or one element behind", "[cuda]") {
    cuda::OwnedStream const stream;
    std::vector<float> masters[2];
    for (std::size_t const begin : {std::size_t{0}, std::size_t{1}}) {
        CAPTURE(begin);
        bench::FlattenPass<float, float, true> const flatten(sizes, begin);
        std::vector<float> tensors(begin + elements);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            tensors[i] = static_cast<float>(i);
        }
        copy_to_device(flatten.tensors(), tensors.data(), tensors.size());
        flatten.enqueue(stream.get());
        tensors.erase(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(begin));
        CHECK(values_of(flatten.bucket(), elements) == tensors);
        CHECK(flatten.moved_bytes() == 8 * elements);

        bench::NormPass<float> const norm(sizes, begin);
        norm.enqueue(stream.get());
        auto const inspection = values_of(norm.result(), 1)[0];
        double const square = static_cast<double>(0.01F) * static_cast<double>(0.01F);
        CHECK(inspection.sum_of_squares() == Approx(square * static_cast<double>(elements)));
        CHECK(inspection.non_finite_count() == 0);
        CHECK(norm.moved_bytes() == 4 * elements);

        bench::UpdatePass const update(sizes, begin);
        cuda::Backend::fill(stream.get(), update.gradients(), begin + elements, 1.0F);
        update.enqueue(stream.get());
        masters[begin] = values_of(update.masters(), elements);
        CHECK(std::all_of(masters[begin].begin(), masters[begin].end(),
                          [](float master) { return master < 0.0F; }));
        CHECK(update.moved_bytes() == 30 * elements);
    }
    CHECK(masters[0] == masters[1]);
}

} // namespace zero::test::benchmarks_test
