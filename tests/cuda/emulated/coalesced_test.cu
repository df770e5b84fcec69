#include "cuda/mirror.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/ops/adamw.hpp>

#include <cstdint>
#include <vector>

// Memory that is not aligned to 16 bytes is accessed number by number. The threads of a warp access
// neighbours, so the 32 numbers of one access are in as few sectors as possible.

namespace zero::test::coalesced_test {

namespace {

using Device = cuda::Backend;

constexpr std::size_t elements = 8192;

struct Group {
    AdamW::Hyper hyper;
};

/// The largest number of sectors that 32 neighbours of this type touch, wherever they begin.
template <class T>
constexpr std::size_t sectors_of = 32 * sizeof(T) / 32 + 1;

/// Returns for each array the most sectors that an access of a warp to it touches.
template <class Enqueue, class... T>
std::vector<std::size_t> sectors_in(cudaStream_t stream, Enqueue const& enqueue,
                                    DeviceArray<T> const&... arrays) {
    emulated::Accesses const accesses;
    enqueue();
    cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return {accesses.most_sectors(arrays.data(), arrays.size() * sizeof(T))...};
}

template <class T>
DeviceArray<T> numbers(std::size_t count) {
    return DeviceArray<T>(kernel_inputs<T>(count, 1));
}

} // namespace

TEMPLATE_TEST_CASE("Operations on memory that is not aligned access whole sectors", "[cuda]", float,
                   bfloat16) {
    cuda::OwnedStream const stream;
    auto const odd = numbers<TestType>(elements + 1);
    auto const other = numbers<TestType>(elements + 1);
    TestType const* const from = odd.data() + 1;
    TestType* const to = other.data() + 1;
    TestType const* const peers[] = {from, from};
    std::size_t const most = sectors_of<TestType>;
    using Sectors = std::vector<std::size_t>;
    auto const seen = [&](auto const& enqueue) {
        return sectors_in(stream.get(), enqueue, odd, other);
    };
    CHECK(seen([&] { Device::convert(stream.get(), to, from, elements, 0.5F); })
          == Sectors{most, most});
    CHECK(seen([&] { Device::accumulate(stream.get(), to, from, elements); })
          == Sectors{most, most});
    CHECK(seen([&] { Device::sum_ranks(stream.get(), to, peers, 2, elements); })
          == Sectors{most, most});
    ops::TreeSum<TestType> const tree{to, {}};
    CHECK(seen([&] { Device::sum_tree(stream.get(), tree, peers, 2, elements); })
          == Sectors{most, most});
    DeviceArray<ops::Inspection> const result(std::vector<ops::Inspection>(1));
    Device::SliceTable<InspectSlice<TestType>> const slices(stream.get(), Device::default_memory(),
                                                            {{from, elements, 0}});
    CHECK(seen([&] { Device::inspect(stream.get(), slices.all(), result.data()); })
          == Sectors{most, 0});
}

TEST_CASE(
    "An update of a slice whose gradient is not aligned accesses whole sectors, in every form "
    "of weights and states",
    "[cuda]") {
    cuda::OwnedStream const stream;
    auto const gradient = numbers<float>(elements + 1);
    auto const master = numbers<float>(elements);
    auto const parameter = numbers<bfloat16>(elements);
    auto const remainder = DeviceArray<std::uint16_t>(elements);
    auto const bits = DeviceArray<std::uint8_t>(elements / 8);
    auto const moment = DeviceArray<float>(std::vector<float>(elements, 0.25F));
    auto const small = numbers<float16>(elements);
    auto const codes = DeviceArray<power8>(elements);
    auto const scales = DeviceArray<float>(std::vector<float>(elements / 64, 1.0F));
    auto const sectors = [&](auto weights, auto states) {
        using Slice = UpdateSlice<float, decltype(weights), decltype(states)>;
        Slice slice;
        slice.elements = elements;
        slice.gradient = gradient.data() + 1;
        static_cast<decltype(weights)&>(slice) = weights;
        static_cast<decltype(states)&>(slice) = states;
        Device::SliceTable<Slice> const table(stream.get(), Device::default_memory(), {slice});
        DeviceArray<Group> const groups(std::vector<Group>{{AdamW::hyper({}, 0.01, 1)}});
        DeviceArray<UpdateDecision> const decision(
            std::vector<UpdateDecision>{{.factor = 1.0F, .skip = false}});
        return sectors_in(
            stream.get(),
            [&] {
                Device::update<AdamW>(stream.get(), table.all(), groups.data(), decision.data());
            },
            gradient, master, parameter, remainder, moment, small, codes);
    };
    MasterPointers<float, bfloat16> const masters{master.data(), parameter.data()};
    SplitPointers const split{parameter.data(), remainder.data(), bits.data()};
    StochasticPointers<bfloat16> const stochastic{parameter.data(), 1, 0};
    StatePointers<2, float> const moments{{moment.data(), moment.data()}};
    ScaledStatePointers<2> const scaled{{{small.data(), small.data()}},
                                        {scales.data(), scales.data()}};
    StochasticStates<ScaledStatePointers<2, power8>> const eight{
        {{{codes.data(), codes.data()}}, {scales.data(), scales.data()}}, 0, 0};
    using Sectors = std::vector<std::size_t>;
    CHECK(sectors(masters, moments) == Sectors{5, 4, 2, 0, 4, 0, 0}); // of gradient, master, ...
    CHECK(sectors(split, moments) == Sectors{5, 0, 2, 2, 4, 0, 0});
    CHECK(sectors(stochastic, moments) == Sectors{5, 0, 2, 0, 4, 0, 0});
    CHECK(sectors(masters, scaled) == Sectors{5, 4, 2, 0, 0, 2, 0});
    CHECK(sectors(masters, eight) == Sectors{5, 4, 2, 0, 0, 0, 1});
    CHECK(sectors(split, scaled) == Sectors{5, 0, 2, 2, 0, 2, 0});
}

} // namespace zero::test::coalesced_test
