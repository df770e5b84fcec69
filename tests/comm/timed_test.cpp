// Engines on a communicator that records: the same bits, and a span for each part of a step.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/convert.hpp>
#include <zero/core/timeline.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace zero::test::timed_test {

namespace {

using Recorded = Timed<LoopbackCommunicator>;
static_assert(Communicator<Recorded> && Backend<Recorded::Backend>);

template <class S>
concept HasTimeline = requires(S& stage) { stage.timeline(); };

static_assert(HasTimeline<ZeroStage<2, Recorded>> && !HasTimeline<ZeroStage<2>>);
static_assert(Timed<Checked<LoopbackCommunicator>>::is_checked && !Recorded::is_checked);

/// Counts of one step on rank 0 by phase, and the other results that are checked.
struct Seen {
    std::array<std::size_t, timeline_phases> spans{};
    std::array<std::size_t, timeline_phases> collectives{};
    std::size_t buckets = 0;
    std::size_t incomplete = 0;
    bool is_own = false; ///< whether the engine returns the timeline of its communicator
    double communication = 0.0;
    double exposed = 0.0;
    std::string first_reduced;
    std::vector<std::vector<float>> parameters;

    [[nodiscard]] std::size_t of(TimelinePhase phase) const {
        return spans[static_cast<std::size_t>(phase)];
    }
    [[nodiscard]] std::size_t collectives_of(TimelinePhase phase) const {
        return collectives[static_cast<std::size_t>(phase)];
    }
};

template <int N, class C>
using Stage = ZeroStage<N, C, Parameters<bfloat16>, SizeCappedBucketer>;

template <class S>
typename S::Options options_of() {
    typename S::Options options;
    options.gradient_clipping = 0.5F;
    options.bucketer.bucket_bytes = 600;
    options.reduction.schedule = ReductionSchedule::boundary;
    return options;
}

/// Returns the names of the first and the last unit of a bucket.
std::string units_of(FlatLayout const& layout, std::size_t bucket,
                     std::vector<std::string> const& names) {
    std::set<std::size_t> units;
    for (Piece const& piece : layout.pieces(bucket)) {
        auto const& of = layout.parameter(piece.parameter).units;
        units.insert(of.begin(), of.end());
    }
    std::string const first = names[*units.begin()];
    return units.size() == 1 ? first : first + " to " + names[*units.rbegin()];
}

template <int N>
Seen recorded_step(bool is_delayed) {
    using S = Stage<N, Recorded>;
    auto const ranks = on_ranks<Seen>(2, [&](LoopbackCommunicator& loopback) {
        Timeline timeline(loopback.rank());
        Recorded communicator(loopback, &timeline);
        host::DelayingQueue queue(static_cast<std::uint64_t>(loopback.rank()), 100);
        auto options = options_of<S>();
        if (is_delayed) {
            options.compute_queue = &queue;
        }
        S engine(communicator, registration<bfloat16>(toy_specs()), options);
        auto const rank = static_cast<std::uint64_t>(loopback.rank());
        if (!is_delayed) {
            (void)run_step(engine, rank, 0);
        }
        (void)engine.step_count();
        timeline.clear();
        Seen seen;
        if (!is_delayed) {
            (void)run_step(engine, rank, 1);
        } else {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    auto const weights = engine.acquire(unit);
                    auto const gradients = engine.gradients(unit);
                    typename Recorded::Backend::Work const work(&queue, "backward", unit);
                    for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                        bfloat16* const values = gradients[parameter].data();
                        std::size_t const elements = gradients[parameter].size();
                        queue.enqueue(
                            [=] { std::fill_n(values, elements, from_float<bfloat16>(1.0F)); });
                    }
                    engine.gradients_ready(unit);
                }
            }
            (void)engine.step(0.01);
        }
        (void)engine.step_count();
        seen.is_own = engine.timeline() == &timeline;
        auto const summary = timeline.summary();
        seen.buckets = engine.layout().trainable_buckets();
        seen.communication = summary.communication;
        seen.exposed = summary.exposed;
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            TimelineSpan const& span = timeline[position];
            seen.incomplete += span.begin == TimelineSpan::unset || span.end < span.begin ? 1 : 0;
            ++seen.spans[static_cast<std::size_t>(span.phase)];
            seen.collectives[static_cast<std::size_t>(span.phase)] += span.is_collective ? 1 : 0;
            if (span.is_collective && span.phase == TimelinePhase::reduce
                && seen.first_reduced.empty()) {
                seen.first_reduced = span.parameter.data();
            }
        }
        timeline.set_recording(false);
        seen.parameters = full_parameters(engine);
        return seen;
    });
    return ranks[0];
}

template <int N>
std::vector<std::vector<float>> plain_parameters() {
    using S = Stage<N, LoopbackCommunicator>;
    return on_ranks<std::vector<std::vector<float>>>(2, [&](LoopbackCommunicator& loopback) {
        S engine(loopback, registration<bfloat16>(toy_specs()), options_of<S>());
        for (std::uint64_t step = 0; step < 2; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(loopback.rank()), step);
        }
        return full_parameters(engine);
    })[0];
}

} // namespace

TEST_CASE(
    "A recorded engine computes the same bits, and its timeline holds each phase of a step as "
    "often as the stage runs it") {
    in_every_stage([&]<int N>() {
        INFO("stage " << N);
        Seen const seen = recorded_step<N>(false);
        CHECK(seen.parameters == plain_parameters<N>());
        CHECK(seen.buckets > 2);
        CHECK(seen.is_own);
        CHECK(seen.incomplete == 0);
        CHECK(seen.collectives_of(TimelinePhase::reduce) == seen.buckets);
        CHECK(seen.collectives_of(TimelinePhase::decide) == 1);
        CHECK(seen.of(TimelinePhase::inspect) == 1);
        bool const publishes = N == 1 || N == 2;
        CHECK(seen.of(TimelinePhase::update) == (publishes ? seen.buckets : 1));
        CHECK(seen.of(TimelinePhase::publish) == (publishes ? seen.buckets : 0));
        CHECK((seen.of(TimelinePhase::gather) >= seen.buckets) == (N == 3));
        CHECK((seen.of(TimelinePhase::gather) == 0) == (N != 3));
        CHECK(seen.first_reduced == "head.scale");
        CHECK(seen.communication > 0.0);
        CHECK(seen.exposed >= 0.0);
        CHECK(seen.exposed <= seen.communication);
    });
}

TEST_CASE("A span of the caller on its own queue is complete, and the wait of that queue for "
          "gathered weights is in the timeline") {
    Seen const seen = recorded_step<3>(true);
    CHECK(seen.of(TimelinePhase::work) == 5);
    CHECK(seen.of(TimelinePhase::wait) > 0);
    CHECK(seen.incomplete == 0);
}

TEST_CASE("Without a timeline a recorded engine records nothing and computes the same bits") {
    using S = Stage<2, Recorded>;
    auto const ranks =
        on_ranks<std::vector<std::vector<float>>>(2, [&](LoopbackCommunicator& loopback) {
            Recorded communicator(loopback, nullptr);
            S engine(communicator, registration<bfloat16>(toy_specs()), options_of<S>());
            for (std::uint64_t step = 0; step < 2; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(loopback.rank()), step);
            }
            if (engine.timeline() != nullptr || Timeline::of_thread() != nullptr) {
                throw std::logic_error("a timeline appeared");
            }
            return full_parameters(engine);
        });
    CHECK(ranks[0] == plain_parameters<2>());
}

TEST_CASE("With buckets, each span of a gather and a reduction has the number and the units of its "
          "bucket, and without them no span has") {
    in_every_stage([]<int N>() {
        INFO("stage " << N);
        using S = Stage<N, Recorded>;
        for (bool const has_buckets : {false, true}) {
            auto const failures = on_ranks<std::vector<std::string>>(2, [&](auto& loopback) {
                Timeline timeline(loopback.rank(), 4096, {.buckets = has_buckets});
                Recorded communicator(loopback, &timeline);
                auto options = options_of<S>();
                options.unit_names = {"embedding", "first", "second", "third", "head"};
                S engine(communicator, registration<bfloat16>(toy_specs()), options);
                (void)engine.step_count();
                timeline.clear();
                (void)run_step(engine, static_cast<std::uint64_t>(loopback.rank()), 0);
                (void)engine.step_count();
                std::vector<std::string> wrong;
                std::vector<std::size_t> reduced;
                for (std::size_t position = 0; position < timeline.size(); ++position) {
                    TimelineSpan const& span = timeline[position];
                    TimelineBucket const* const bucket = timeline.bucket_of(position);
                    bool const works_on_bucket = span.phase == TimelinePhase::gather
                                                 || span.phase == TimelinePhase::reduce
                                                 || span.phase == TimelinePhase::publish;
                    if (works_on_bucket && (bucket != nullptr) != has_buckets) {
                        wrong.push_back(span.what.data());
                    }
                    bool const decides =
                        span.phase == TimelinePhase::inspect || span.phase == TimelinePhase::decide;
                    if ((decides || !has_buckets) && bucket != nullptr) {
                        wrong.push_back("a bucket of " + std::string(span.what.data()));
                    }
                    if (works_on_bucket && bucket != nullptr) {
                        std::string const units = bucket->units.data();
                        if (units != units_of(engine.layout(), bucket->number, options.unit_names)
                            || (span.is_collective && span.index != bucket->number)) {
                            wrong.push_back(units);
                        }
                        if (span.phase == TimelinePhase::reduce && span.is_collective) {
                            reduced.push_back(bucket->number);
                        }
                    }
                }
                std::sort(reduced.begin(), reduced.end());
                for (std::size_t index = 0; index < reduced.size(); ++index) {
                    if (reduced[index] != index) {
                        wrong.push_back("reductions of each bucket");
                    }
                }
                if (reduced.size() != (has_buckets ? engine.layout().trainable_buckets() : 0)) {
                    wrong.push_back("the number of reductions");
                }
                return wrong;
            });
            CHECK(failures == std::vector<std::vector<std::string>>(2));
        }
    });
}

TEST_CASE("Units without names are shown by their numbers, and long names are cut") {
    std::vector<ParameterSpec> const specs{
        {"a", 10, {0}, 0, true}, {"b", 10, {1}, 0, true}, {"c", 10, {2}, 0, true}};
    auto layout = make_layout<ContiguousPartitioner, SingleBucketer>(specs, {});
    CHECK(std::string(detail::timeline_bucket_of(layout, 0).units.data()) == "unit 0 to unit 2");
    layout.name_units({std::string(80, 'x'), "y", "z"});
    CHECK(std::string(detail::timeline_bucket_of(layout, 0).units.data()) == std::string(63, 'x'));
    layout.name_units({std::string(58, 'x'), "y", "zzz"});
    CHECK(std::string(detail::timeline_bucket_of(layout, 0).units.data())
          == std::string(58, 'x') + " to z");
}

} // namespace zero::test::timed_test
