#include "host/memory_twin.hpp"

#include "support/shapes.hpp"

#include <zero/host/host_backend.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Copies the 148 tensors of GPT-2 124M to one bucket and back, with and without a cast, and
// compares with one memcpy of the same number of bytes. Smaller sizes have the same 148 tensors
// with fewer elements each.
namespace {

using namespace zero;

/// The offset of each tensor in a bucket, for a model with about this many elements.
struct Geometry {
    explicit Geometry(std::size_t size) {
        double const scale = static_cast<double>(size) / static_cast<double>(test::gpt2_elements);
        for (auto const& spec : test::gpt2_124m()) {
            auto const scaled =
                static_cast<std::size_t>(scale * static_cast<double>(spec.elements));
            tensors.push_back(std::max<std::size_t>(1, scaled));
            begins.push_back(bucket_elements);
            elements += tensors.back();
            bucket_elements += (tensors.back() + 63) / 64 * 64;
        }
    }

    std::vector<std::size_t> tensors;
    std::vector<std::size_t> begins;
    std::size_t elements = 0;
    std::size_t bucket_elements = 0;
};

/// Tensors of type T in `memory` and a bucket of type B.
template <class T, class B>
struct Model {
    explicit Model(Geometry const& geometry) : bucket(geometry.bucket_elements) {
        for (std::size_t index = 0; index < geometry.tensors.size(); ++index) {
            memory.push_back(
                std::make_unique<bench::Array<T>>(geometry.tensors[index], from_float<T>(0.01F)));
            slices.push_back(
                {memory.back()->data(), geometry.begins[index], geometry.tensors[index]});
        }
    }

    std::vector<std::unique_ptr<bench::Array<T>>> memory;
    std::vector<CopySlice<T>> slices;
    bench::Array<B> bucket;
};

template <class T, class B>
void count(benchmark::State& state, Geometry const& geometry) {
    bench::count_bytes(state, static_cast<double>(geometry.elements * (sizeof(T) + sizeof(B))));
}

template <class T, class B>
void flatten(benchmark::State& state) {
    Geometry const geometry(bench::share(state));
    Model<T, B> const model(geometry);
    auto const queue = HostBackend::default_compute_queue();
    for (auto _ : state) {
        HostBackend::copy_to_bucket(queue, std::span<CopySlice<T> const>(model.slices),
                                    model.bucket.data());
        benchmark::ClobberMemory();
    }
    count<T, B>(state, geometry);
}

template <class B, class T>
void unflatten(benchmark::State& state) {
    Geometry const geometry(bench::share(state));
    Model<T, B> const model(geometry);
    auto const queue = HostBackend::default_compute_queue();
    for (auto _ : state) {
        HostBackend::copy_from_bucket(queue, std::span<CopySlice<T> const>(model.slices),
                                      static_cast<B const*>(model.bucket.data()));
        benchmark::ClobberMemory();
    }
    count<T, B>(state, geometry);
}

/// Reads half of the bytes and writes the other half, for all types.
template <class From, class To>
void twin(benchmark::State& state) {
    Geometry const geometry(bench::share(state));
    std::size_t const bytes = geometry.elements * (sizeof(From) + sizeof(To)) / 2;
    bench::Array<char> const from(bytes, 1);
    bench::Array<char> const to(bytes, 2);
    for (auto _ : state) {
        std::memcpy(to.data(), from.data(), bytes);
        benchmark::ClobberMemory();
    }
    count<From, To>(state, geometry);
}

void add(std::string const& name, void (*twin_function)(benchmark::State&),
         void (*function)(benchmark::State&)) {
    for (auto const& [who, run] :
         {std::pair{"/twin", twin_function}, std::pair{"/zero", function}}) {
        bench::sizes(benchmark::RegisterBenchmark((name + who).c_str(), run));
        bench::all_cores(benchmark::RegisterBenchmark((name + who).c_str(), run));
    }
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    add("flatten/float32", twin<float, float>, flatten<float, float>);
    add("flatten/bfloat16", twin<bfloat16, bfloat16>, flatten<bfloat16, bfloat16>);
    add("flatten/float32_to_bfloat16", twin<float, bfloat16>, flatten<float, bfloat16>);
    add("unflatten/float32", twin<float, float>, unflatten<float, float>);
    add("unflatten/bfloat16", twin<bfloat16, bfloat16>, unflatten<bfloat16, bfloat16>);
    add("unflatten/bfloat16_to_float32", twin<bfloat16, float>, unflatten<bfloat16, float>);
    return true;
}();

} // namespace
