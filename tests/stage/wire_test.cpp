#include "support/catch.hpp"
#include "wire_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/describe.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

// Weights in codes: what a pass reads is a straight-line function of the master weights, in every
// stage, with every partitioner and bucket size, on every number of ranks.

namespace zero::test::wire_test {

namespace {

using namespace wire_model;

template <int N, class C, class... Policies>
using Coded = ZeroStage<N, Parameters<bfloat16>, Wire<C>, Policies...>;

/// A codec of a user: the upper 12 bits of each float.
struct UpperBits {
    static constexpr std::size_t bytes_per_block = 128;

    static void encode(float const (&values)[64], std::uint8_t* to) noexcept {
        float zero = 0; // NaN if a value is not finite
        for (float const value : values) {
            zero += 0.0F * value;
        }
        for (float const value : values) {
            std::uint32_t const bits = std::bit_cast<std::uint32_t>(value + zero) >> 20U;
            *to++ = static_cast<std::uint8_t>(bits & 255U);
            *to++ = static_cast<std::uint8_t>(bits >> 8U);
        }
    }
    static void decode(std::uint8_t const* from, float (&values)[64]) noexcept {
        for (float& value : values) {
            std::uint32_t const low = *from++;
            std::uint32_t const high = *from++;
            value = std::bit_cast<float>((low | high << 8U) << 20U);
        }
    }
    static float error_bound(float largest) noexcept { return largest * 0x1p-3F + 0x1p-129F; }
};

/// Trains on `world` ranks and returns everything, and whether each read followed from the masters.
template <class C, class Stage>
Trained train(int world, typename Stage::Options const& given = {}) {
    std::vector<std::size_t> wrong;
    auto const all = on_ranks<Trained>(world, [&](LoopbackCommunicator& communicator) {
        using T = typename Stage::ParameterType;
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        auto options = given;
        options.reduction.schedule = ReductionSchedule::boundary;
        auto parameters = registration<T>(toy_specs());
        auto const memory = provide_memory(parameters, options);
        Stage engine(communicator, parameters, options);
        bool is_right = reads_codes<C>(engine);
        for (std::uint64_t step = 0; step < 3; ++step) {
            (void)step_of(engine, rank, step).report();
            is_right = reads_codes<C>(engine) && is_right;
        }
        if (!is_right) {
            throw std::logic_error("a rank reads what does not follow from the master weights");
        }
        Trained result;
        result.resize(toy_specs());
        result.parameters = full_parameters(engine);
        engine.for_each_owned_slice([&](auto const& slice) { result.add(slice); });
        return result;
    });
    return Trained::joined(all);
}

template <class C>
void check_bits() {
    for (int const world : {1, 2, 3, 5}) {
        CAPTURE(world);
        Trained const expected = train<C, Coded<3, C>>(world);
        CHECK((train<C, Coded<1, C>>(world) == expected));
        CHECK((train<C, Coded<2, C>>(world) == expected));
        CHECK((train<C, Coded<2, C, RoundRobinPartitioner>>(world) == expected));
        CHECK((train<C, Coded<1, C, WholeGroupPartitioner>>(world) == expected));
        CHECK((train<C, Coded<3, C, BalancedPartitioner>>(world) == expected));
        CHECK((train<C, Coded<1, C>>(world, {.bucketer = {.bucket_bytes = 256}}) == expected));
        CHECK((train<C, Coded<2, C, SingleBucketer>>(world) == expected));
        CHECK((train<C, Coded<2, C>>(world, {.storage = Storage::scattered}) == expected));
        CHECK((train<C, Coded<1, C>>(world, {.poison = true}) == expected));
        CHECK((train<C, Coded<3, C>>(
                   world, {.gather = {.persistence_threshold = 200, .keep_after_forward = 1},
                           .poison = true})
               == expected));
    }
}

} // namespace

TEST_CASE("Weights in 8 bits have the same bits in every stage, with every partitioner, bucket "
          "size and storage, and are read as their masters say") {
    check_bits<Int8Blocks>();
}

TEST_CASE("Weights in 4 bits have the same bits in every stage, with every partitioner, bucket "
          "size and storage, and are read as their masters say") {
    check_bits<Int4Blocks>();
}

TEST_CASE("Weights and gradients in a codec of a user have the same bits in every stage") {
    using C = UpperBits;
    using Both = Wire<C, C>;
    using Bfloat16 = Parameters<bfloat16>;
    for (int const world : {1, 3}) {
        CAPTURE(world);
        Trained const expected = train<C, ZeroStage<3, Bfloat16, Both>>(world);
        CHECK((train<C, ZeroStage<1, Bfloat16, Both>>(world) == expected));
        CHECK((train<C, ZeroStage<2, Bfloat16, Both, RoundRobinPartitioner>>(world) == expected));
        CHECK_FALSE((train<C, Coded<2, C>>(world) == expected)); // gradients are in codes as well
    }
}

TEST_CASE("Without a codec the same run has other bits") { // or the comparisons show nothing
    auto const plain = on_ranks<Values>(2, [](LoopbackCommunicator& all) {
        ZeroStage<3, Parameters<bfloat16>> engine(all, registration<bfloat16>(toy_specs()));
        (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
        return own_masters(engine);
    });
    auto const encoded = on_ranks<Values>(2, [](LoopbackCommunicator& all) {
        Coded<3, Int4Blocks> engine(all, registration<bfloat16>(toy_specs()));
        (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
        return own_masters(engine);
    });
    CHECK(plain != encoded);
}

TEST_CASE("In stage 3 parameters that are their own masters keep every bit in the shards") {
    for (int const world : {1, 3}) {
        auto const outcome = on_ranks<int>(world, [](LoopbackCommunicator& all) {
            ZeroStage<3, Wire<Int8Blocks>> engine(all, registration<float>(toy_specs()));
            bool is_right = reads_codes<Int8Blocks>(engine);
            engine.for_each_owned_slice([&](auto const& slice) {
                for (std::size_t i = 0; i < slice.values.size(); ++i) {
                    is_right =
                        is_right && slice.values[i] == noise(1, slice.parameter, slice.begin + i);
                }
            });
            (void)step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
            return reads_codes<Int8Blocks>(engine) && is_right ? 1 : 0;
        });
        CHECK(outcome == std::vector<int>(static_cast<std::size_t>(world), 1));
    }
}

TEST_CASE("Frozen parameters travel as they are in every stage") {
    auto const frozen = [](auto& engine) { return full_parameters(engine)[4]; };
    auto const expected = initial_values<bfloat16>(4, 40);
    auto const third = on_ranks<std::vector<float>>(2, [&](LoopbackCommunicator& all) {
        Coded<3, Int4Blocks> engine(all, registration<bfloat16>(toy_specs()));
        return frozen(engine);
    });
    auto const second = on_ranks<std::vector<float>>(2, [&](LoopbackCommunicator& all) {
        Coded<2, Int4Blocks> engine(all, registration<bfloat16>(toy_specs()));
        return frozen(engine);
    });
    CHECK(third == std::vector(2, expected));
    CHECK(second == std::vector(2, expected));
}

namespace {

/// A skipped step between others changes nothing.
template <int N>
int skips_nothing(LoopbackCommunicator& all) {
    auto const rank = static_cast<std::uint64_t>(all.rank());
    Coded<N, Int8Blocks, DynamicLossScaler> engine(all, registration<bfloat16>(toy_specs()));
    (void)step_of(engine, rank, 0).report();
    auto const read = full_parameters(engine);
    auto const masters = own_masters(engine);
    bool is_right = true;
    for (int i = 0; i < 3; ++i) {
        is_right = step_of(engine, rank, 1, true).report().is_skipped && is_right;
        is_right = full_parameters(engine) == read && own_masters(engine) == masters && is_right;
    }
    return is_right ? 1 : 0;
}

/// So does a parameter that got no gradient.
template <int N>
int leaves_parameters(LoopbackCommunicator& all) {
    Coded<N, Int8Blocks> engine(all, registration<bfloat16>(toy_specs()),
                                {.unused_parameters = UnusedParameters::leave});
    auto const read = full_parameters(engine);
    for (int step = 0; step < 2; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            (void)micro_step;
            auto const weights = engine.acquire(2);
            auto const gradients = engine.gradients(2);
            for (auto& gradient : gradients[3]) {
                gradient = from_float<bfloat16>(1.0F);
            }
            engine.gradients_ready(2);
        }
        (void)engine.step(0.05).report();
    }
    auto const now = full_parameters(engine);
    return now[1] == read[1] && now[0] == read[0] && now[3] != read[3]
                   && reads_codes<Int8Blocks>(engine)
               ? 1
               : 0;
}

} // namespace

TEST_CASE("A skipped step changes no bit of what is read, and neither does an update that leaves a "
          "parameter out") {
    std::vector<int> const right(3, 1);
    CHECK(on_ranks<int>(3, [](auto& all) { return skips_nothing<1>(all); }) == right);
    CHECK(on_ranks<int>(3, [](auto& all) { return skips_nothing<2>(all); }) == right);
    CHECK(on_ranks<int>(3, [](auto& all) { return skips_nothing<3>(all); }) == right);
    CHECK(on_ranks<int>(3, [](auto& all) { return leaves_parameters<2>(all); }) == right);
    CHECK(on_ranks<int>(3, [](auto& all) { return leaves_parameters<3>(all); }) == right);
}

TEST_CASE("A NaN in a parameter is read in its block only, and found by the step") {
    auto const found = on_ranks<int>(2, [](LoopbackCommunicator& all) {
        auto parameters = registration<bfloat16>(toy_specs());
        parameters[1].initialise = [](std::size_t begin, std::span<bfloat16> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                bool const is_bad = begin + i == 100;
                values[i] =
                    from_float<bfloat16>(is_bad ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
            }
        };
        Coded<3, Int8Blocks, DynamicLossScaler> engine(all, parameters);
        auto const read = full_parameters(engine)[1];
        std::size_t bad = 0;
        for (std::size_t i = 0; i < read.size(); ++i) {
            bad += std::isnan(read[i]) == (i >= 64 && i < 128) ? 0 : 1;
        }
        auto const report = step_of(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
        return bad == 0 && report.is_skipped ? 1 : 0;
    });
    CHECK(found == std::vector<int>{1, 1});
}

TEST_CASE("The description of a stage names the codec") {
    CHECK(describe<Coded<3, Int8Blocks>>().find(", weights sent as Int8Blocks")
          != std::string::npos);
    CHECK(describe<ZeroStage<3, Wire<>>>().find("Wire") == std::string::npos);
}

} // namespace zero::test::wire_test
