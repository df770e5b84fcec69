#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/without_pieces.hpp"

#include <zero/host/delaying_queue.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

// Gradients in tensors of the caller are reduced where they lie, with the bits of their copies.

namespace zero::test::gradients_in_place_test {

namespace {

using Copying = WithoutPieces<LoopbackCommunicator>;
static_assert(zero::detail::ReduceScattersPieces<LoopbackCommunicator, bfloat16, float>);
static_assert(!zero::detail::ReduceScattersPieces<Copying, bfloat16, float>);
static_assert(zero::detail::AccumulatesReduceScatter<Copying, bfloat16, float>);

/// A model, and how its gradients are delivered.
struct Case {
    int world = 1;
    std::vector<std::size_t> elements; // by parameter; the units are pairs of them
    std::size_t bucket_bytes = 1024;
    std::size_t micro_steps = 1;
    bool is_one_micro_step = false;
    std::optional<ReductionSchedule> schedule;
    bool are_some_engines = false; // some ranks keep some gradients in the engine's leases
    bool are_some_unused = false;  // ranks do not write some of them
    std::uint64_t seed = 0;
};

Case make_case(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    constexpr std::array<std::size_t, 13> usual{0,  1,   2,   3,   31,   63,  64,
                                                65, 127, 128, 257, 1009, 3001};
    Case c;
    c.world = std::array{1, 2, 3, 5}[below(4)];
    for (std::size_t count = 1 + below(24); count != 0; --count) {
        c.elements.push_back(usual[below(usual.size())]);
    }
    c.bucket_bytes = 256U << below(6);
    c.is_one_micro_step = below(3) == 0;
    c.micro_steps = c.is_one_micro_step ? 1 : 1 + below(3);
    if (below(2) == 0) {
        c.schedule =
            below(2) == 0 ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
    }
    c.are_some_engines = below(3) == 0;
    c.are_some_unused = below(2) == 0;
    c.seed = seed;
    return c;
}

/// What a rank returns: the bits of its weights, and the memory of its engine.
struct Seen {
    std::vector<float> weights;
    std::size_t leases = 0;
    std::size_t skipped = 0; // steps
    bool is_planned = false;
};

std::uint64_t mix_up(std::uint64_t a, std::uint64_t b) {
    return std::mt19937_64(a * 1000003 + b)();
}

template <class T>
T special(std::uint64_t hash, float value) { // also what sums treat differently
    switch (hash % 97) {
    case 0: return from_float<T>(-0.0F);
    case 1: return from_float<T>(std::numeric_limits<float>::denorm_min());
    default: return from_float<T>(value);
    }
}

/// Trains two steps. After each micro-step the caller overwrites its tensors with NaN: that is when
/// it may.
template <int N, class T, class Communicator>
Seen train(Case const& c, Communicator& communicator) {
    using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, Sgd, Communicator>;
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    std::vector<std::vector<T>> tensors;
    std::vector<typename Stage::Registration> parameters(c.elements.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].name = "p" + std::to_string(i);
        parameters[i].elements = c.elements[i];
        parameters[i].units = {i / 2};
        tensors.emplace_back(c.elements[i] + 1);
        bool const is_engines = c.are_some_engines && mix_up(c.seed, rank * 1000 + i / 4) % 3 == 0;
        if (!is_engines) { // at any alignment
            parameters[i].gradient = tensors[i].data() + (i + rank) % 2;
        }
    }
    HostMemoryResource memory;
    host::DelayingQueue queue(c.seed + rank, 50);
    typename Stage::Options options{.bucketer = {.bucket_bytes = c.bucket_bytes},
                                    .communication_queue = &queue,
                                    .memory = &memory};
    options.extra_leases = c.are_some_engines ? 64 : 0; // units that are left out keep theirs
    options.reduction.schedule = c.schedule;
    options.reduction.one_micro_step = c.is_one_micro_step;
    Seen seen;
    Stage engine(communicator, parameters, options);
    for (std::uint64_t step = 0; step < 2; ++step) {
        engine.begin_step();
        for (std::size_t micro_step = 0; micro_step < c.micro_steps; ++micro_step) {
            bool const is_last = micro_step + 1 == c.micro_steps;
            engine.begin_micro_step(is_last ? MicroStep::last : MicroStep::more);
            auto const salt_of = [&](std::size_t unit) {
                return mix_up(c.seed, step * 1000 + micro_step * 100 + unit);
            };
            auto const is_used = [&](std::size_t unit) { // stage 3 reduces by unit: all ranks agree
                return !c.are_some_unused || unit == 0
                       || mix_up(salt_of(unit), N == 3 ? 0 : rank) % 4 != 0;
            };
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                std::uint64_t const salt = salt_of(unit);
                if (!is_used(unit)) { // its tensors hold NaN, and count as zeros
                    continue;
                }
                [[maybe_unused]] auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    auto const gradient = gradients[parameter];
                    for (std::size_t i = 0; i < gradient.size(); ++i) {
                        gradient[i] =
                            special<T>(salt + i + rank, noise(rank, parameter, i, salt % 1000));
                    }
                }
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
            for (auto& tensor : tensors) {
                std::fill(tensor.begin(), tensor.end(),
                          from_float<T>(std::numeric_limits<float>::quiet_NaN()));
            }
        }
        seen.skipped += engine.step(0.1).report().is_skipped ? 1 : 0;
    }
    for (auto const& values : full_parameters(engine)) {
        seen.weights.insert(seen.weights.end(), values.begin(), values.end());
    }
    seen.leases = memory.allocated_bytes(BufferKind::gradient_leases);
    seen.is_planned = engine.memory_plan()[BufferKind::gradient_leases].bytes() == seen.leases;
    return seen;
}

template <int N, class T>
void check_case(Case const& c) {
    auto const in_place =
        on_ranks<Seen>(c.world, [&](LoopbackCommunicator& inner) { return train<N, T>(c, inner); });
    auto const copied = on_ranks<Seen>(c.world, [&](LoopbackCommunicator& inner) {
        Copying communicator(inner);
        return train<N, T>(c, communicator);
    });
    bool const is_boundary =
        c.schedule.value_or(default_schedule(N)) == ReductionSchedule::boundary;
    for (std::size_t rank = 0; rank < in_place.size(); ++rank) {
        INFO("seed " << c.seed << ", stage " << N << ", W " << c.world << ", rank " << rank);
        CHECK((in_place[rank].weights == copied[rank].weights));
        CHECK(in_place[rank].skipped == 0);
        CHECK(in_place[rank].is_planned);
        CHECK(copied[rank].is_planned);
        if (!c.are_some_engines) {
            bool const may_copy = is_boundary && !c.is_one_micro_step;
            CHECK(in_place[rank].leases == (may_copy ? copied[rank].leases : 0));
            bool const sums_in_leases = c.is_one_micro_step && std::is_same_v<T, float>
                                        && (c.world == 1 || N == 1 || is_boundary);
            CHECK(
                ((copied[rank].leases == 0) == (sums_in_leases || in_place[rank].weights.empty())));
        }
    }
}

} // namespace

TEST_CASE("Gradients of the caller that are reduced where they lie train to the bits of copies") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        Case const c = make_case(seed);
        int const stage = 1 + static_cast<int>(seed % 3);
        with_stage(stage, [&]<int N>() {
            if constexpr (N != 0) {
                seed % 2 == 0 ? check_case<N, float>(c) : check_case<N, bfloat16>(c);
            }
        });
    }
}

TEST_CASE("A wrong number of micro-steps, and a wrong gradient, change the weights") {
    Case c;
    c.world = 2;
    c.elements = {65, 3};
    auto const weights = [](Case const& of) {
        return on_ranks<Seen>(of.world,
                              [&](LoopbackCommunicator& communicator) {
                                  return train<2, float>(of, communicator);
                              })[0]
            .weights;
    };
    auto const expected = weights(c);
    CHECK((weights(c) == expected));
    c.seed = 1; // other gradients
    CHECK_FALSE((weights(c) == expected));
    c.seed = 0;
    c.micro_steps = 2;
    CHECK_FALSE((weights(c) == expected));
}

TEST_CASE("Ten thousand tensors of one element are reduced where they lie") {
    Case c;
    c.world = 2;
    c.elements.assign(10'000, 1);
    c.bucket_bytes = std::size_t{1} << 20U;
    check_case<2, float>(c);
    check_case<1, bfloat16>(c);
}

} // namespace zero::test::gradients_in_place_test
