#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/shapes.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/recording.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/stage/zero_stage.hpp>

#include <optional>
#include <vector>

// The number of elements that ranks read from each other in one step: the transport's count, the
// recorder's count, the formula and literals agree.

namespace zero::test::traffic_test {

namespace {

/// A backend that moves none of the model's data, so that 124 million parameters take no time and
/// no memory (their pages are never touched). It does not affect the counts.
struct IdleBackend : HostBackend {
    template <class T>
    static void fill(Queue, T*, std::size_t, T) {}
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        HostBackend::copy_bytes(queue, out, in, bytes < 4096 ? bytes : 0);
    }
    template <class To, class From>
    static void convert(Queue, To*, From const*, std::size_t, float) {}
    template <class To, class From>
    static void accumulate(Queue, To*, From const*, std::size_t) {}
    template <class T>
    static void sum_ranks(Queue, T*, T const* const*, int, std::size_t) {}
    template <class T, class InBucket>
    static void copy_to_bucket(Queue, std::span<CopySlice<T> const>, InBucket*) {}
    template <class A, class Inspection>
    static void inspect(Queue, std::span<InspectSlice<A> const>, Inspection*) {}
    template <class Optimizer, class Slice, class Group>
    static void update(Queue, std::span<Slice const>, Group const*, UpdateDecision const*) {}
};

using Idle = Loopback<IdleBackend>;

/// The counts of one rank in one step.
struct Counts {
    TrafficCount transport, recorded;
    Traffic formula;
    std::size_t buckets = 0;
};

template <int N>
std::vector<Counts> count_step(std::vector<ParameterSpec> const& specs, int world,
                               ReductionSchedule schedule, std::size_t micro_steps) {
    return on_ranks<Counts, Idle>(world, [&](Idle& communicator) {
        Recording<Idle> recording(communicator);
        std::vector<Parameter<bfloat16>> parameters = registration<bfloat16>(specs);
        for (auto& parameter : parameters) {
            parameter.initialise = nullptr;
        }
        ZeroStage<N, Parameters<bfloat16>, Recording<Idle>> engine(
            recording, parameters,
            {.reduction = {.schedule = schedule, .wire_bytes = std::size_t{1} << 40U}});
        std::vector<std::size_t> acquired;
        Counts counts;
        for (int step = 0; step < 2; ++step) { // the second with prefetch
            communicator.reset_traffic();
            recording.reset_recorded();
            acquired.clear();
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                    auto const weights = engine.acquire(unit);
                    acquired.push_back(unit);
                }
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    acquired.push_back(unit);
                    auto const gradients = engine.gradients(unit); // zeros
                    (void)gradients[engine.layout().unit_parameters(unit).front()];
                    engine.gradients_ready(unit);
                }
            }
            (void)engine.step(0.1).report();
            if (step == 0) {
                auto const evaluated =
                    engine.acquire(1); // the next step must not continue the unit order with it
            }
        }
        counts.transport = communicator.traffic();
        counts.recorded = recording.recorded();
        counts.formula = step_traffic(engine.layout(), N, schedule, micro_steps, acquired);
        counts.buckets = engine.layout().trainable_buckets();
        return counts;
    });
}

std::uint64_t sum(std::vector<Counts> const& ranks, CollectiveKind kind) {
    std::uint64_t elements = 0;
    for (Counts const& rank : ranks) {
        elements += rank.transport[kind].elements;
    }
    return elements;
}

/// Returns the elements moved by all ranks, by kind of collective.
struct Expected {
    std::uint64_t reduce_scatter, all_gather, all_reduce;
};

template <int N>
void check_step(std::vector<ParameterSpec> const& specs, int world, ReductionSchedule schedule,
                std::size_t micro_steps, Expected const& expected) {
    INFO("stage " << N << ", world " << world << ", " << micro_steps << " micro-steps, "
                  << (schedule == ReductionSchedule::boundary ? "boundary" : "every micro-step"));
    auto const ranks = count_step<N>(specs, world, schedule, micro_steps);
    auto const others = static_cast<std::uint64_t>(world) - 1;
    CHECK(ranks[0].formula
          == Traffic{expected.reduce_scatter, expected.all_gather, expected.all_reduce});
    CHECK(sum(ranks, CollectiveKind::reduce_scatter) == expected.reduce_scatter);
    CHECK(sum(ranks, CollectiveKind::all_gather) == expected.all_gather);
    CHECK(sum(ranks, CollectiveKind::all_reduce) == expected.all_reduce);
    CHECK(sum(ranks, CollectiveKind::broadcast) == 0);
    for (Counts const& rank : ranks) {
        // With equal shards each rank moves the same. A payload of n elements moves n (W - 1)
        // elements over all ranks, and an all-reduce moves twice that.
        CHECK(rank.transport[CollectiveKind::reduce_scatter].elements * ranks.size()
              == expected.reduce_scatter);
        CHECK(rank.recorded[CollectiveKind::reduce_scatter].elements * others
              == expected.reduce_scatter);
        CHECK(rank.recorded[CollectiveKind::all_gather].elements * others == expected.all_gather);
        CHECK(rank.recorded[CollectiveKind::all_reduce].elements * others * 2
              == expected.all_reduce);
        // bfloat16, except that stage 0 gathers the sum of several reductions in float.
        CHECK(rank.recorded[CollectiveKind::all_gather].bytes
              == (N == 0 ? 4 : 2) * rank.recorded[CollectiveKind::all_gather].elements);
        CHECK(rank.recorded[CollectiveKind::reduce_scatter].bytes
              == 2 * rank.recorded[CollectiveKind::reduce_scatter].elements);
        for (auto const kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                                CollectiveKind::all_reduce}) {
            CHECK(rank.recorded[kind].calls == rank.transport[kind].calls);
        }
        CHECK(rank.recorded[CollectiveKind::reduce_scatter].calls
                  + rank.recorded[CollectiveKind::all_reduce].calls
              == rank.buckets * (schedule == ReductionSchedule::boundary ? 1 : micro_steps));
    }
}

constexpr auto boundary = ReductionSchedule::boundary;
constexpr auto every = ReductionSchedule::every_micro_step;

/// `p` trainable elements on `world` ranks; each micro-step of stage 3 gathers `gathered` elements.
void check_model(std::vector<ParameterSpec> const& specs, int world, std::uint64_t p,
                 std::uint64_t gathered) {
    std::uint64_t const w = static_cast<std::uint64_t>(world) - 1;
    check_step<0>(specs, world, boundary, 1, {0, 0, 2 * p * w});
    check_step<0>(specs, world, boundary, 3, {0, 0, 2 * p * w});
    check_step<0>(specs, world, every, 3, {3 * p * w, p * w, 0});
    for (std::size_t const micro_steps : {1U, 3U}) {
        check_step<1>(specs, world, boundary, micro_steps, {p * w, p * w, 0});
        check_step<2>(specs, world, boundary, micro_steps, {p * w, p * w, 0});
        check_step<1>(specs, world, every, micro_steps, {micro_steps * p * w, p * w, 0});
        check_step<2>(specs, world, every, micro_steps, {micro_steps * p * w, p * w, 0});
        check_step<3>(specs, world, boundary, micro_steps, {p * w, micro_steps * gathered * w, 0});
        check_step<3>(specs, world, every, micro_steps,
                      {micro_steps * p * w, micro_steps * gathered * w, 0});
    }
}

} // namespace

TEST_CASE("GPT-2 124M with a tied head moves 2 P' (W - 1) elements a step in stages 0 to 2") {
    auto const specs = gpt2_124m(Head::tied);
    check_step<0>(specs, 2, boundary, 1, {0, 0, 248'879'616});
    check_step<1>(specs, 2, boundary, 1, {124'439'808, 124'439'808, 0});
    check_step<2>(specs, 2, every, 1, {124'439'808, 124'439'808, 0});
    check_step<2>(specs, 4, every, 4, {1'493'277'696, 373'319'424, 0});
}

TEST_CASE("GPT-2 124M with a tied head gathers the embedding for both of its units in stage 3") {
    check_step<3>(gpt2_124m(Head::tied), 2, every, 1, {124'439'808, 326'074'368, 0});
    check_step<3>(gpt2_124m(Head::tied), 4, every, 1, {373'319'424, 978'223'104, 0});
}

TEST_CASE("A model without ties moves 3 P' (W - 1) elements a micro-step in stage 3") {
    auto const specs = gpt2_124m(Head::separate);
    check_step<3>(specs, 2, every, 1,
                  {163'037'184, 326'074'368, 0}); // together 489,111,552 = 3 * 163,037,184
    check_step<3>(specs, 2, every, 4, {652'148'736, 1'304'297'472, 0});
    check_step<1>(specs, 2, boundary, 4, {163'037'184, 163'037'184, 0});
}

TEST_CASE("Every stage, schedule and number of micro-steps moves what the formula says") {
    check_model(gpt2_124m(Head::tied), 2, 124'439'808, 326'074'368);
    check_model(gpt2_124m(Head::separate), 4, 163'037'184, 326'074'368);
}

} // namespace zero::test::traffic_test
