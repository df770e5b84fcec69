#include "host/memory_twin.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/host/kernels.hpp>
#include <zero/ops/tree_sum.hpp>

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

// Compares the sum over W ranks in rank order with a loop that moves the same bytes. One thread;
// comm/loopback_bench.cpp measures one thread per rank.
//
//   apart       writes elements of the ranks' type to a range of its own
//   in_place    overwrites the range of rank 0, as a reduce-scatter in place does
//   into_float  converts the sums to float, as the first micro-step does (16-bit types only)
//   added       adds the sums to a range of floats, as later micro-steps do
//
// "tree" adds the ranks as a subtree of micro-batches.
namespace {

using namespace zero;

enum class To { apart, in_place, into_float, added };

template <class T, To to>
using Result = std::conditional_t<to == To::into_float || to == To::added, float, T>;

template <class T, To to>
struct Peers {
    using A = Result<T, to>;

    Peers(std::size_t world, std::size_t n) : result(to == To::in_place ? 0 : n, A{}) {
        for (std::size_t rank = 0; rank < world; ++rank) {
            owners.push_back(std::make_unique<bench::Array<T>>(n, zero::from_float<T>(0.25F)));
            pointers.push_back(owners.back()->data());
        }
    }
    A* out() const {
        if constexpr (to == To::in_place) {
            return owners.front()->data();
        } else {
            return result.data();
        }
    }
    std::vector<std::unique_ptr<bench::Array<T>>> owners;
    std::vector<T const*> pointers;
    bench::Array<A> result;
};

template <class T, To to>
void count(benchmark::State& state, std::size_t world) {
    std::size_t const bytes = world * sizeof(T) + (to == To::added ? 2 : 1) * sizeof(Result<T, to>);
    bench::count_bytes(state, static_cast<double>(bytes) * static_cast<double>(state.range(0)));
}

template <class T, To to>
void sum_ranks(benchmark::State& state, std::size_t world) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Peers<T, to> const peers(world, n);
    for (auto _ : state) {
        host::sum_ranks(peers.out(), peers.pointers.data(), static_cast<int>(world), n,
                        to == To::added);
        benchmark::ClobberMemory();
    }
    count<T, to>(state, world);
}

template <class T, To to>
void sum_tree(benchmark::State& state, std::size_t world) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Peers<T, to> const peers(world, n);
    ops::TreeSum<Result<T, to>> sum{peers.out(), {}};
    if constexpr (to == To::added) {
        sum.held.oldest = peers.out();
        sum.held.count = 1;
    }
    for (auto _ : state) {
        host::sum_tree(sum, peers.pointers.data(), static_cast<int>(world), n);
        benchmark::ClobberMemory();
    }
    count<T, to>(state, world);
}

template <class T, To to>
void twin(benchmark::State& state, std::size_t world) {
    auto const n = static_cast<std::size_t>(state.range(0));
    Peers<T, to> const peers(world, n);
    for (auto _ : state) {
        bench::move_sum<to == To::added>(peers.out(), peers.pointers.data(), world, 0, n);
        benchmark::ClobberMemory();
    }
    count<T, to>(state, world);
}

template <class T, To to>
void add(std::string const& name) {
    for (std::size_t const world : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
        std::string const full = "sum_ranks/" + name + "_W" + std::to_string(world);
        bench::sizes(benchmark::RegisterBenchmark((full + "/twin").c_str(), twin<T, to>, world));
        bench::sizes(
            benchmark::RegisterBenchmark((full + "/zero").c_str(), sum_ranks<T, to>, world));
        bench::sizes(
            benchmark::RegisterBenchmark((full + "/tree").c_str(), sum_tree<T, to>, world));
    }
}

[[maybe_unused]] bool const is_registered = [] {
    bench::keep_memory();
    add<float, To::apart>("float_apart");
    add<float, To::in_place>("float_in_place");
    add<float, To::added>("float_added");
    add<bfloat16, To::apart>("bfloat16_apart");
    add<bfloat16, To::in_place>("bfloat16_in_place");
    add<bfloat16, To::into_float>("bfloat16_into_float");
    add<bfloat16, To::added>("bfloat16_added");
    return true;
}();

} // namespace
