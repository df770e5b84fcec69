#include "gradient_codes_model.hpp"
#include "support/catch.hpp"
#include "support/filled_memory.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/communication_model.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// What gradients in codes cost on each of two levels: by the transports' own count, by the
// recorder's, by the cost model and by the formulas, and what an engine allocates for them.

namespace zero::test::gradient_levels_volume_test {

namespace {

using namespace gradient_codes;

using Counted = Groups<Recording<LoopbackCommunicator>, Hybrid>;

/// Divided evenly by every number of ranks used here.
constexpr std::size_t elements = 2 * 64 * 24;

/// Bytes of one step that a rank reads, by level.
struct Volume {
    std::uint64_t inside = 0; ///< in reductions
    std::uint64_t between = 0;
    std::uint64_t between_calls = 0;
    std::uint64_t added = 0; ///< bytes of sums between replicas that travel as they are
    StepCommunication predicted{};
    std::size_t planned = 0; ///< the row `wire`
    std::size_t allocated = 0;
};

template <class C>
constexpr std::size_t block_bytes() {
    if constexpr (std::is_same_v<C, Plain>) {
        return 0;
    } else {
        return C::bytes_per_block;
    }
}

template <int N, class Inside, class Between, class... Policies>
std::vector<Volume> volumes(int world, int shard, std::vector<ParameterSpec> const& specs,
                            std::size_t wire_bytes = std::size_t{25} << 20U) {
    using Stage = ZeroStage<N, Parameters<bfloat16>, Wire<Plain, Level<Inside, Between>>, Counted,
                            Policies...>;
    std::vector<Volume> all_volumes(static_cast<std::size_t>(world));
    run_ranks(world, test_time_out, [&](LoopbackCommunicator& everyone) {
        auto const rank = static_cast<std::size_t>(everyone.rank());
        auto inside = everyone.split(everyone.rank() / shard, everyone.rank());
        auto between = everyone.split(everyone.rank() % shard, everyone.rank());
        Recording<LoopbackCommunicator> all(everyone);
        Recording<LoopbackCommunicator> of_group(inside);
        Recording<LoopbackCommunicator> of_replicas(between);
        Counted groups(all, of_group, of_replicas);
        HostMemoryResource memory;
        Stage engine(groups, registration<bfloat16>(specs),
                     {.reduction = {.wire_bytes = wire_bytes}, .memory = &memory});
        Volume& own = all_volumes[rank];
        own.planned = engine.memory_plan()[BufferKind::wire].bytes();
        write_gradients(engine, rank, 0, 2);
        (void)engine.step(0.01).report();
        inside.reset_traffic();
        between.reset_traffic();
        of_replicas.reset_recorded();
        write_gradients(engine, rank, 1, 2);
        (void)engine.step(0.01).report();
        auto const& read = inside.traffic();
        own.inside =
            read[CollectiveKind::reduce_scatter].bytes + read[CollectiveKind::exchange].bytes;
        auto const& sums = between.traffic();
        own.between = sums[CollectiveKind::exchange].bytes + sums[CollectiveKind::all_gather].bytes;
        own.added = sums[CollectiveKind::all_reduce].bytes;
        own.between_calls = of_replicas.recorded()[CollectiveKind::exchange].calls
                            + of_replicas.recorded()[CollectiveKind::all_gather].calls;
        own.allocated = memory.allocated_bytes(BufferKind::wire);
        using Types = typename zero::detail::config_of_t<Stage>::template TypesAt<0>;
        own.predicted = count_step_communication(
            engine.layout(), static_cast<std::size_t>(inside.rank()), N, engine.schedule(), 2, {},
            {.sizes = {.parameter = 2, .communication = 2},
             .wire_elements = zero::detail::has_wire<Types>(engine.schedule()) ? wire_bytes / 2 : 0,
             .replicas = static_cast<std::size_t>(world / shard),
             .replica = static_cast<std::size_t>(between.rank()),
             .gradient_block_bytes = block_bytes<Inside>(),
             .replica_block_bytes = block_bytes<Between>(),
             .gradient_wire_bytes = wire_bytes});
    });
    return all_volumes;
}

constexpr std::array<std::array<int, 2>, 5> grids{{{4, 2}, {6, 3}, {6, 2}, {3, 3}, {3, 1}}};

} // namespace

TEST_CASE("Codes between replicas are 2 P' b (R-1)/(G R) bytes a step, with 66/64 or 34/64 bytes "
          "for b, and codes inside P' b (G-1)/G in each reduction") {
    for (auto const& [world, shard] : grids) {
        CAPTURE(world, shard);
        auto const g = static_cast<std::size_t>(shard);
        auto const r = static_cast<std::size_t>(world / shard);
        std::size_t const plain = 2 * elements * (g - 1) / g; // of bfloat16
        std::size_t const in_8_bits = elements / 64 * 66 * (g - 1) / g;
        for (Volume const& own :
             volumes<3, Plain, Int8Blocks>(world, shard, even_specs(elements))) {
            CHECK(own.inside == 2 * plain); // of two micro-steps
            CHECK(own.between == 2 * elements / 64 * 66 * (r - 1) / (g * r));
            CHECK(own.between_calls == (r == 1 ? 0 : 4U));
            CHECK(own.added == 0);
        }
        for (Volume const& own :
             volumes<2, Int8Blocks, Int4Blocks>(world, shard, even_specs(elements))) {
            CHECK(own.inside == 2 * in_8_bits);
            CHECK(own.between == 2 * elements / 64 * 34 * (r - 1) / (g * r));
            CHECK(own.added == 0);
        }
        for (Volume const& own :
             volumes<1, Int8Blocks, Plain>(world, shard, even_specs(elements))) {
            CHECK(own.inside == in_8_bits); // at the end of the step
            CHECK(own.between == 0);
            CHECK(own.added == 2 * 2 * elements * (r - 1) / (g * r));
        }
    }
    // literals: 3072 elements, 2 x 2 ranks
    auto const literal = volumes<2, Plain, Int4Blocks>(4, 2, even_specs(elements))[0];
    CHECK(literal.inside == 6144);
    CHECK(literal.between == 816);
    CHECK((volumes<2, Plain, Int8Blocks>(4, 2, even_specs(elements))[3].between) == 1584);
}

TEST_CASE("Uneven extents and chunks between replicas are counted by the cost model as they are "
          "sent, and planned as they are allocated") {
    for (std::size_t const wire_bytes : {0U, 300U, 1U << 20U}) {
        for (auto const& [world, shard] : grids) {
            CAPTURE(wire_bytes, world, shard);
            auto const check = [](std::vector<Volume> const& all) {
                for (Volume const& own : all) {
                    CHECK(own.predicted.replicated.bytes == own.between + own.added);
                    CHECK((own.added != 0 || own.predicted.replicated.calls == own.between_calls));
                    CHECK(own.predicted.reductions.bytes == own.inside);
                    CHECK(own.planned == own.allocated);
                }
            };
            check(volumes<3, Plain, Int4Blocks, BalancedPartitioner>(world, shard, toy_specs(),
                                                                     wire_bytes));
            check(volumes<2, Int4Blocks, Int8Blocks>(world, shard, toy_specs(), wire_bytes));
            check(volumes<1, Plain, Int8Blocks>(world, shard, toy_specs(), wire_bytes));
        }
    }
    // extents of 768 elements in two units; each rank encodes one and gets two halves of it
    CHECK((volumes<3, Plain, Int8Blocks>(4, 2, even_specs(elements))[0].planned) == 2 * 12 * 66);
    CHECK((volumes<3, Int4Blocks, Int8Blocks>(4, 2, even_specs(elements))[0].planned)
          == 2 * 24 * 34 + 2 * 12 * 66);
    CHECK((volumes<3, Plain, Int8Blocks>(3, 3, even_specs(elements))[0].planned) == 0);
}

TEST_CASE("What pads an extent is sent to other replicas as zeros, whatever the memory held") {
    // one parameter of 70 elements in groups of three: the third extent holds padding only
    std::vector<ParameterSpec> const specs{{"only", 70, {0}, 0, true}};
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    std::vector<int> right(6);
    run_ranks<Hosts>(6, test_time_out, {.shard = 3}, [&](Hosts& hosts) {
        FilledMemory memory(BufferKind::wire);
        ZeroStage<2, Wire<Plain, Level<Plain, Int8Blocks>>, Hosts> engine(
            hosts, registration<float>(specs), {.poison = true, .memory = &memory});
        write_gradients(engine, static_cast<std::uint64_t>(hosts.rank()), 0, 1);
        (void)engine.step(0.01).report();
        bool is_zero = true;
        for (std::size_t i = 0; i < 66; ++i) {
            is_zero = is_zero && memory.codes[i] == 0;
        }
        right[static_cast<std::size_t>(hosts.rank())] = is_zero == (hosts.rank() % 3 == 2) ? 1 : 0;
    });
    CHECK(right == std::vector<int>(6, 1));
}

TEST_CASE("The formulas of codes between replicas refuse what does not exist") {
    auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        even_specs(elements), {.world = 2, .element_bytes = 2});
    CHECK_THROWS_WITH(plan_replica_codes(layout, 2, 0, 2, 66, 1024),
                      contains_text("there is no rank 2"));
    CHECK_THROWS_WITH(plan_replica_codes(layout, 1, 2, 2, 66, 1024),
                      contains_text("there is no replica 2; there are 2"));
    CHECK(plan_replica_codes(layout, 1, 0, 1, 66, 1024).bytes() == 0);
}

} // namespace zero::test::gradient_levels_volume_test
