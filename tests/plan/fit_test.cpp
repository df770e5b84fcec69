#include "src/plan/fit.hpp"
#include "src/plan/models.hpp"

#include "support/catch.hpp"

#include <zero/layout/communication_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

// What fits into a memory: every row does, and no better one that was tried is left out.

namespace zero::test::fit_test {

namespace {

using planner::Candidate;
using planner::Fit;
using planner::Task;

Task task_of(std::uint64_t memory, std::size_t ranks = 8, std::size_t micro_steps = 1,
             double latency = 5e-6) {
    return {.model = planner::gpt2(12, 768),
            .ranks = ranks,
            .micro_steps = micro_steps,
            .network = CommunicationModel(NetworkLevel{latency, 50e9}),
            .memory = memory};
}

/// Checks the list against all candidates.
void check(Task const& task) {
    INFO(task.memory << " bytes, " << task.ranks << " ranks, " << task.micro_steps
                     << " micro-steps");
    Fit const result = planner::fit(task);
    bool fits_without_host = false;
    double least = 1e300;
    for (Candidate const& candidate : planner::candidates_of(task, result.on_host)) {
        if (candidate.bytes() <= task.memory) {
            least = std::min(least, planner::cost_of(candidate, task));
        }
    }
    for (Candidate const& candidate : planner::candidates_of(task, false)) {
        fits_without_host = fits_without_host || candidate.bytes() <= task.memory;
    }
    CHECK(result.on_host != fits_without_host);
    double cost = 0;
    for (Candidate const& candidate : result.fitting) {
        CHECK(candidate.bytes() <= task.memory);
        CHECK(candidate.policies.on_host == result.on_host);
        CHECK(planner::tolerance * planner::cost_of(candidate, task) >= cost);
        cost = planner::cost_of(candidate, task);
    }
    if (!result.fitting.empty()) {
        auto const& best = result.fitting.front();
        CHECK(planner::cost_of(best, task) <= planner::tolerance * least);
        for (Candidate const& candidate : planner::candidates_of(task, result.on_host)) {
            bool const is_equal = planner::cost_of(candidate, task) <= planner::tolerance * least;
            bool const fits = candidate.bytes() <= task.memory;
            CHECK((!fits || !is_equal || candidate.stage >= best.stage));
        }
        CHECK(result.smallest.bytes() <= task.memory);
    } else {
        CHECK(result.smallest.bytes() > task.memory);
    }
}

} // namespace

TEST_CASE("Every row fits, the first one costs least to a twentieth, and the host serves only "
          "where nothing else "
          "does") {
    for (std::uint64_t const memory :
         {std::uint64_t{1}, std::uint64_t{100'000'000}, std::uint64_t{300'000'000},
          std::uint64_t{500'000'000}, std::uint64_t{700'000'000}, std::uint64_t{1'100'000'000},
          std::uint64_t{3'000'000'000}}) {
        for (std::size_t const ranks : {1U, 3U, 8U}) {
            check(task_of(memory, ranks));
        }
        check(task_of(memory, 8, 4));
    }
    Task without_network = task_of(600'000'000);
    without_network.network.reset();
    check(without_network);
}

TEST_CASE("A memory of exactly the bytes of a plan fits, and one byte less does not") {
    Task const roomy = task_of(std::uint64_t{1} << 40U);
    Fit const all = planner::fit(roomy);
    std::uint64_t const first = all.fitting.front().bytes();
    CHECK(planner::fit(task_of(first)).fitting.front().bytes() == first);
    CHECK(planner::fit(task_of(first - 1)).fitting.front().bytes() < first);
}

TEST_CASE("Larger buckets pay where latency does") {
    auto const bucket_bytes = [](double latency) {
        return planner::fit(task_of(std::uint64_t{1} << 40U, 8, 1, latency))
            .fitting.front()
            .policies.bucketer.bucket_bytes;
    };
    CHECK(bucket_bytes(0) == SizeCappedBucketerOptions{}.bucket_bytes);
    CHECK(bucket_bytes(1e-3) > SizeCappedBucketerOptions{}.bucket_bytes);
}

TEST_CASE("With several micro-steps, sums of a whole model save traffic where they fit") {
    auto const fitting = planner::fit(task_of(std::uint64_t{1} << 40U, 8, 4, 0)).fitting;
    CHECK(fitting.front().stage == 1);
    auto const of_stage_2 =
        std::find_if(fitting.begin(), fitting.end(),
                     [](Candidate const& candidate) { return candidate.stage == 2; });
    REQUIRE(of_stage_2 != fitting.end());
    CHECK(of_stage_2->policies.schedule == ReductionSchedule::boundary);
}

TEST_CASE(
    "Units are kept until the update as far as they fit, and one at a time where two do not") {
    Task task = task_of(0);
    task.model = planner::equal_layers(1e9, 50);
    task.ranks = 64;
    auto const bytes = [&](planner::Policies const& policies) {
        return planner::try_out(task, 3, policies).bytes();
    };
    std::uint64_t const two = bytes({});
    std::uint64_t const one =
        bytes({.gather = {.prefetch_elements = 0,
                          .max_live_elements = planner::largest_unit(task.model, 64)}});
    std::uint64_t const half = bytes({.gather = {.keep_until_update = 500'000'000}});
    CHECK(one < two);
    CHECK(two < half);
    task.memory = one;
    CHECK(planner::is_limited(planner::fit(task).fitting.front().policies.gather));
    task.memory = two;
    CHECK(!planner::is_limited(planner::fit(task).fitting.front().policies.gather));
    task.memory = half;
    CHECK(planner::fit(task).fitting.front().policies.gather.keep_until_update == 500'000'000);
}

TEST_CASE("Where nothing fits, the number of ranks that suffices is told, or that none does") {
    Task task = task_of(0, 2);
    task.model = planner::equal_layers(1e9, 100);
    auto const smallest = [&](std::size_t ranks) {
        Task other = task;
        other.ranks = ranks;
        other.network.reset();
        return planner::smallest_of(planner::candidates_of(other, false)).bytes();
    };
    task.memory = smallest(16);
    REQUIRE(smallest(8) > task.memory);
    Fit const with_host = planner::fit(task); // the host helps
    CHECK(with_host.on_host);
    CHECK(!with_host.fitting.empty());
    // The parameters of a unit and their gradients, of which one is always in flight.
    task.memory = 2 * 2 * 10'000'000 - 1;
    Fit const none = planner::fit(task);
    CHECK(none.fitting.empty());
    CHECK(none.enough_ranks == 0);
    CHECK_THAT(planner::remedies_of(none, task).front(),
               contains_text("no number of ranks suffices, because leases do not shrink"));
    // Without its host, 2 ranks have too little, and 16 enough.
    Task two = task;
    two.memory = smallest(16);
    CHECK(planner::enough_ranks(two) == 16);
    two.memory = smallest(16) - 1;
    CHECK(planner::enough_ranks(two) == 32);
    CHECK(planner::remedies_of({.enough_ranks = 16}, task).front() == "16 ranks suffice");
}

TEST_CASE("Half of the sums is a remedy only for sums of floats") {
    Task task = task_of(1);
    auto const has_it = [&] {
        auto const remedies = planner::remedies_of({}, task);
        return std::any_of(remedies.begin(), remedies.end(), [](std::string const& remedy) {
            return remedy.rfind("--accumulate-bytes 2", 0) == 0;
        });
    };
    CHECK(has_it());
    task.accumulate_bytes = 2;
    CHECK_FALSE(has_it());
}

} // namespace zero::test::fit_test
