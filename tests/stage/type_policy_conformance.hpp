#pragma once

// The conformance suite of policies that choose number types or storage: master weights, optimizer
// states, gradient reductions. A test file lists one entry for each policy. An entry has these
// members, which `TypePolicyEntry` helps to define:
//
// - `Parameter`: the parameter type;
// - `Stage<N, More...>`: a ZeroStage with the policy, NoLossScaler and SizeCappedBucketer;
// - `of_500`: the bytes of 500 elements on one rank of stage 2, worked out by hand;
// - `has_bits_of_default`: whether it trains to the bits of the default policy;
// - `keeps_more`: master weights only; whether it keeps more than the parameter's own bits.

#include "support/catch.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"
#include "support/trained.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace zero::test {

/// Bytes of the plan's rows, padding included: 500 elements are padded to 512, which are 8 blocks
/// of 64.
struct Bytes {
    std::size_t gradients, master_weights, optimizer_state;

    friend bool operator==(Bytes const&, Bytes const&) = default;
};

/// Stages with one size-capped bucketer, so that the stages of an entry share one engine.
template <class P, class... Policies>
struct TypePolicyEntry {
    using Parameter = P;
    template <int N, class... More>
    using Stage =
        ZeroStage<N, Parameters<P>, NoLossScaler, SizeCappedBucketer, Policies..., More...>;
};

/// Checks that stage, partitioner, bucket size, storage, poison and rebuilt buckets change no bit.
template <class Entry>
void check_same_bits() {
    constexpr int world = 3;
    using First = typename Entry::template Stage<0>;
    auto const expected = trained<First>(world);
    auto const adopted = trained<First>(
        world, {.storage = Storage::adopted}); // blocks of scaled states start elsewhere there
    in_every_stage([&]<int N>() {
        using Stage = typename Entry::template Stage<N>;
        CHECK((trained<Stage>(world, {.poison = true}) == expected));
        CHECK((trained<typename Entry::template Stage<N, RoundRobinPartitioner>>(
                   world, {.bucketer = {.bucket_bytes = 1024}})
               == expected));
        if constexpr (N < 3) {
            CHECK((trained<Stage>(world, {.storage = Storage::scattered}) == expected));
            CHECK(
                (trained<Stage>(world, {.storage = Storage::adopted, .poison = true}) == adopted));
        }
    });
    // After a rebuild other ranks own the elements, and the stored values have moved to them.
    using Third = typename Entry::template Stage<2, RoundRobinPartitioner>;
    std::vector<std::size_t> const order{1, 3, 0, 2, 4};
    CHECK((trained<Third>(world,
                          {.rebuild_buckets = Third::in_ready_order,
                           .leases_until_rebuild = 8,
                           .bucketer = {.bucket_bytes = 1024}},
                          {.order = order})
           == trained<First>(world, {.extra_leases = 8}, {.order = order})));
    CHECK_FALSE((trained<First>(world, {}, {.learning_rate = 0.0101}) == expected));
    CHECK((trained<ZeroStage<0, Parameters<typename Entry::Parameter>, NoLossScaler>>(world)
           == expected)
          == Entry::has_bits_of_default);
}

/// Checks that a skipped step changes no bit of what the policy keeps, nor of the steps after it.
template <class Entry>
void check_skip() {
    in_every_stage([]<int N>() {
        using Stage = typename Entry::template Stage<N>;
        auto const run = [](bool with_skip) {
            return on_ranks<std::vector<std::uint32_t>>(2, [with_skip](
                                                               LoopbackCommunicator& communicator) {
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                using G = typename Stage::GradientType;
                Stage engine(communicator, registration<typename Entry::Parameter, G>(toy_specs()));
                (void)run_step(engine, rank, 0);
                auto bits = snapshot(engine);
                if (with_skip) {
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        engine.gradients(1)[1][3] =
                            from_float<G>(std::numeric_limits<float>::infinity());
                        engine.gradients_ready(1);
                    }
                    bits.push_back(engine.step(0.01).report().is_skipped ? 1 : 0);
                    auto const after = snapshot(engine);
                    bits.insert(bits.end(), after.begin(), after.end());
                } else {
                    bits.push_back(1);
                    bits.insert(bits.end(), bits.begin(), bits.end() - 1);
                }
                (void)run_step(engine, rank, 1);
                auto const last = snapshot(engine);
                bits.insert(bits.end(), last.begin(), last.end());
                return bits;
            });
        };
        CHECK((run(true) == run(false)));
    });
}

/// Checks that the allocations equal the plan before and after a step, and the bytes worked out by
/// hand.
template <class Entry>
void check_memory() {
    in_every_stage([]<int N>() {
        using Stage = typename Entry::template Stage<N>;
        using G = typename Stage::GradientType;
        struct Seen {
            std::array<std::size_t, buffer_kinds> planned{}, allocated{}, after{};
        };
        auto const run = [](int world, std::vector<ParameterSpec> const& specs) {
            return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
                HostMemoryResource memory;
                Stage engine(communicator, registration<typename Entry::Parameter, G>(specs),
                             {.memory = &memory});
                Seen seen;
                auto const read = [&](auto& bytes) {
                    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                        bytes[kind] = memory.allocated_bytes(static_cast<BufferKind>(kind));
                    }
                };
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    MemoryRow const row = engine.memory_plan().rows[kind];
                    seen.planned[kind] = row.is_callers ? 0 : row.bytes();
                }
                read(seen.allocated);
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0, 2)
                    .report();
                read(seen.after);
                return seen;
            });
        };
        for (Seen const& seen : run(3, toy_specs())) {
            CHECK(seen.allocated == seen.planned);
            CHECK(seen.after == seen.planned);
        }
        auto const bytes = run(1, {{"w", 500, {0}, 0, true}})[0].allocated;
        auto const of = [&](BufferKind kind) { return bytes[static_cast<std::size_t>(kind)]; };
        if constexpr (N == 2) {
            CHECK((Bytes{of(BufferKind::gradients), of(BufferKind::master_weights),
                         of(BufferKind::optimizer_state)}
                   == Entry::of_500));
        }
    });
}

/// Checks that values written by the caller become the master weights, and nothing is left of the
/// old ones.
template <class Entry>
void check_changed_parameters() {
    struct Seen {
        int before = 0, wrong = 0;
    };
    in_every_stage([]<int N>() {
        using Stage = typename Entry::template Stage<N>;
        using P = typename Entry::Parameter;
        auto const ranks = on_ranks<Seen>(3, [](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<P, typename Stage::GradientType>(toy_specs()));
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
            Seen seen;
            engine.for_each_owned_slice([&](auto const& slice) {
                for (std::size_t i = 0; i < slice.values.size(); ++i) {
                    seen.before += slice.master_weight(i) != to_float(slice.values[i]) ? 1 : 0;
                    slice.values[i] = from_float<P>(3.0F + static_cast<float>(i % 8) * 0.125F);
                }
            });
            engine.parameters_changed();
            engine.for_each_owned_slice([&](auto const& slice) {
                for (std::size_t i = 0; i < slice.values.size(); ++i) {
                    seen.wrong +=
                        slice.master_weight(i) == 3.0F + static_cast<float>(i % 8) * 0.125F ? 0 : 1;
                }
            });
            return seen;
        });
        for (Seen const& seen : ranks) {
            CHECK((seen.before > 100) == (Entry::keeps_more));
            CHECK(seen.wrong == 0);
        }
    });
}

} // namespace zero::test
