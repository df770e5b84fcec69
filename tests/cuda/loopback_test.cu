#include "cuda/device.hpp"

#include "comm/values.hpp"
#include "support/ranks.hpp"

#include <zero/comm/sum_over_ranks.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/ops/tree_sum.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

// Every collective of the loopback on a device, with the same numbers as on the host: even cuts,
// uneven cuts and empty extents.

namespace zero::test::loopback_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;

std::vector<std::vector<std::size_t>> families_of_cuts(int world) {
    auto const ranks = static_cast<std::size_t>(world);
    std::vector<std::size_t> even(ranks + 1);
    std::vector<std::size_t> uneven(ranks + 1);
    std::vector<std::size_t> one(ranks + 1, 0); // all on the last rank
    for (std::size_t rank = 0; rank <= ranks; ++rank) {
        even[rank] = 64 * rank;
        uneven[rank] = 37 * rank * rank;
    }
    one.back() = 8193;
    return {even, uneven, one};
}

/// Everything that a rank receives from the collectives on some cuts. `Place` puts a vector into
/// the communicator's memory and reads it back.
template <class T, template <class> class Place, class Communicator>
std::vector<std::vector<T>> collect(Communicator& communicator, typename Communicator::Queue queue,
                                    std::vector<std::size_t> const& cuts) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    std::size_t const begin = cuts[rank];
    std::size_t const own = cuts[rank + 1] - begin;
    std::vector<std::vector<T>> results;
    auto const source = values_of<T>(communicator.rank(), cuts.back(), 1);
    {
        Place<T> const send(source);
        Place<T> const receive(std::vector<T>(own + 1));
        communicator.reduce_scatter(static_cast<T const*>(send.data()), receive.data(), cuts, queue,
                                    {"apart", 0});
        results.push_back(receive.read(queue));
        Place<T> const pieces(
            std::vector<T>(own * static_cast<std::size_t>(communicator.size()) + 1));
        communicator.exchange(static_cast<T const*>(send.data()), pieces.data(), cuts, queue,
                              {"exchange", 0});
        results.push_back(pieces.read(queue));
        Place<float> const held(values_of<float>(communicator.rank(), 2 * own, 2));
        auto const world = static_cast<std::size_t>(communicator.size());
        ops::TreeSum<T> const tree{
            receive.data(), {held.data(), held.data() + own, own, 2, world % 3 == 0 ? 3 : world}};
        communicator.reduce_scatter(static_cast<T const*>(send.data()), tree, cuts, queue,
                                    {"in a tree", 0});
        results.push_back(receive.read(queue));
        communicator.all_reduce(static_cast<T const*>(send.data()), send.data(), cuts, queue,
                                {"in place", 0});
        results.push_back(send.read(queue));
    }
    {
        Place<T> const all(source);
        communicator.all_gather(static_cast<T const*>(all.data() + begin), all.data(), cuts, queue,
                                {"gather", 0});
        results.push_back(all.read(queue));
        communicator.broadcast(all.data(), cuts.back() / 2, communicator.size() - 1, queue,
                               {"broadcast", 0});
        results.push_back(all.read(queue));
    }
    return results;
}

template <class T>
struct OnHost {
    explicit OnHost(std::vector<T> const& values) : memory(values) {}
    T* data() const { return const_cast<T*>(memory.data()); }
    std::vector<T> read(host::Queue* queue) const {
        queue->synchronise();
        return memory;
    }
    std::vector<T> memory;
};

template <class T>
struct OnDevice {
    explicit OnDevice(std::vector<T> const& values) : memory(values) {}
    T* data() const { return memory.data(); }
    std::vector<T> read(cudaStream_t stream) const {
        cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        return on_host(memory);
    }
    DeviceArray<T> memory;
};

template <class T>
bool is_same(std::vector<std::vector<T>> const& a, std::vector<std::vector<T>> const& b) {
    bool same = a.size() == b.size();
    for (std::size_t i = 0; same && i < a.size(); ++i) {
        same = equal_bits(a[i], b[i]);
    }
    return same;
}

} // namespace

TEMPLATE_TEST_CASE("The loopback on a device gives the bits of the loopback on the host", "[cuda]",
                   float, bfloat16, float16) {
    if (skips_without_device()) {
        return;
    }
    for (int const world : {1, 2, 3, 8, 9}) {
        for (auto const& cuts : families_of_cuts(world)) {
            using Results = std::vector<std::vector<TestType>>;
            auto const expected = on_ranks<Results>(world, [&](LoopbackCommunicator& communicator) {
                host::InlineQueue queue;
                return collect<TestType, OnHost>(communicator, &queue, cuts);
            });
            auto const found =
                on_ranks<Results, DeviceLoopback>(world, [&](DeviceLoopback& communicator) {
                    cuda::OwnedStream const stream;
                    return collect<TestType, OnDevice>(communicator, stream.get(), cuts);
                });
            for (std::size_t rank = 0; rank < expected.size(); ++rank) {
                INFO("rank " << rank << " of " << world);
                CHECK(is_same(found[rank], expected[rank]));
            }
        }
    }
}

TEST_CASE("The loopback on a device reduces more integers than fit into one rendezvous", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const found =
        on_ranks<std::vector<std::int64_t>, DeviceLoopback>(3, [](DeviceLoopback& communicator) {
            cuda::OwnedStream const stream;
            std::vector<std::int64_t> values(150);
            std::iota(values.begin(), values.end(), std::int64_t{communicator.rank()} << 40U);
            DeviceArray<std::int64_t> const sums(values);
            DeviceArray<std::int64_t> const least(values);
            communicator.all_reduce_integers(sums.data(), 150, IntegerReduction::sum, stream.get());
            communicator.all_reduce_integers(least.data(), 150, IntegerReduction::min,
                                             stream.get());
            cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
            auto result = on_host(sums);
            auto const other = on_host(least);
            result.insert(result.end(), other.begin(), other.end());
            return result;
        });
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < 150; ++i) {
        expected.push_back((std::int64_t{3} << 40U) + 3 * i);
    }
    for (std::int64_t i = 0; i < 150; ++i) {
        expected.push_back(i);
    }
    CHECK(found == std::vector<std::vector<std::int64_t>>(3, expected));
}

TEST_CASE("A number is summed over the ranks of a device", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const found =
        on_ranks<std::vector<double>, DeviceLoopback>(3, [](DeviceLoopback& communicator) {
            return std::vector<double>{
                sum_over_ranks(communicator, 0.1 * (communicator.rank() + 1)),
                static_cast<double>(sum_over_ranks(communicator, 2'000'000'000))};
        });
    CHECK(found == std::vector<std::vector<double>>(3, {0.1 + 0.2 + 0.1 * 3, 6e9}));
}

} // namespace zero::test::loopback_test
