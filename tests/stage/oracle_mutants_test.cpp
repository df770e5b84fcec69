#include "support/catch.hpp"
#include "support/sanitizers.hpp"

#include "oracle/mutants.hpp"

#include <functional>
#include <vector>

// An oracle that never fails proves nothing. Each bug below must be found by the same comparison
// that passes without it.

using namespace zero;
using namespace zero::test::oracle;

namespace {

/// Checks that an arithmetic bug is found in every stage, at the first attempt.
void require_found(Configuration const& c, Mutation mutation) {
    for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage, c.index);
        CHECK(count_differences(stage, c) == 0);
        CHECK(count_differences(stage, c, {mutation, Fence{}}) != 0);
    }
}

static_assert(fences == 19,
              "a new fence needs a test that takes it away: below, or with what uses it");

/// Checks that a missing fence is found. It is a race and may go unnoticed, so the test repeats it
/// with other delays.
void require_fence(Fence fence, std::vector<int> const& stages,
                   std::function<void(Configuration&)> const& adjust) {
    constexpr std::size_t attempts = 60;
    for (int const stage : stages) {
        Configuration c = make_mutant_configuration(0);
        adjust(c);
        CAPTURE(name_of(fence), stage);
        CHECK(count_differences(stage, c) == 0);
        if (test::has_thread_sanitizer) {
            std::cout << "skipped: stage " << stage << " without the fence '" << name_of(fence)
                      << "' has a data race, which the thread sanitizer reports itself\n";
            continue;
        }
        std::size_t attempt = 0;
        while (attempt < attempts
               && count_differences(stage, c, {Mutation::fence_removed, fence}) == 0) {
            c.index = ++attempt;
            c.longest_delay *= attempt % 15 == 0 ? 2 : 1; // a busy machine outlasts short delays
        }
        CHECK(attempt < attempts);
    }
}

void compute_slowly(Configuration& c) {
    c.compute = Compute::delaying;
}
void communicate_slowly(Configuration& c) {
    c.communication = Communication::delaying;
}

/// In stage 3 a unit takes the place of the unit before last. Its gather follows the reduction of
/// that unit, which hides the race. So one unit is written without acquiring its weights.
void communicate_ahead(Configuration& c) {
    communicate_slowly(c);
    c.prefetches = true;
    c.never_acquired = 1;
}

} // namespace

TEST_CASE("A learning rate that is 0.1 % too large is found in every stage", "[oracle][mutants]") {
    Configuration c = make_mutant_configuration(0);
    c.steps = 5;
    for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage);
        CHECK(count_differences(stage, c) == 0);
        CHECK(count_differences(stage, c, {}, 1.001) != 0);
    }
}

TEST_CASE("A sum over ranks in reverse order is found in every stage", "[oracle][mutants]") {
    require_found(make_mutant_configuration(1), Mutation::ranks_reversed);
}

TEST_CASE("A sum over ranks that is rounded early is found in every stage", "[oracle][mutants]") {
    require_found(make_mutant_configuration(2), Mutation::sum_rounded_early);
}

TEST_CASE("A sum over micro-steps that is rounded early is found in every stage",
          "[oracle][mutants]") {
    Configuration c = make_mutant_configuration(3);
    require_found(c, Mutation::added_in_bfloat16);
    c.schedule = Schedule::boundary;
    require_found(c, Mutation::added_in_bfloat16);
}

TEST_CASE("A norm that reads the padding is found in every stage", "[oracle][mutants]") {
    Configuration c = make_mutant_configuration(4);
    c.is_poisoned = true;
    c.clip = 1.0F;
    require_found(c, Mutation::padding_inspected);
}

TEST_CASE("A norm, or a clip coefficient, that is reported one unit in the last place too small is "
          "found in every stage",
          "[oracle][mutants]") {
    // Parameters and states are right, so only the comparison of reports can find it.
    Configuration c = make_mutant_configuration(5);
    require_found(c, Mutation::norm_off_by_an_ulp);
    require_found(c, Mutation::coefficient_off_by_an_ulp);
    c.clip = 0.01F;
    c.steps = 2;
    c.memory = Memory::scattered;
    for (int const stage : {0, 1, 2}) {
        CAPTURE(stage);
        CHECK(count_differences(stage, c) == 0);
        CHECK(count_differences(stage, c, {Mutation::norm_off_by_an_ulp, Fence{}})
              == 3 * c.all_steps()); // each rank, each step, and nothing else
        CHECK(count_differences(stage, c, {Mutation::coefficient_off_by_an_ulp, Fence{}})
              == 3 * c.all_steps());
    }
}

TEST_CASE("A last bucket that is not reduced is found in every stage", "[oracle][mutants]") {
    Configuration c = make_mutant_configuration(5);
    require_found(c, Mutation::last_bucket_dropped);
    c.schedule = Schedule::boundary;
    require_found(c, Mutation::last_bucket_dropped);
}

TEST_CASE("A state that does not follow its elements to their new owners is found in every stage "
          "where a rebuild changes owners",
          "[oracle][mutants]") {
    Configuration c = make_mutant_configuration(6);
    c.rebuilds = true;
    c.order = Order::fixed;
    c.leases_until_rebuild = 64;
    c.cap_elements = 1U << 20U;
    CHECK(backward_order(c, 0, 0, 0) != std::vector<std::size_t>{3, 2, 1, 0});
    for (int const stage : {1, 2}) {
        CAPTURE(stage);
        CHECK(count_differences(stage, c) == 0);
        CHECK(count_differences(stage, c, {Mutation::state_not_moved, Fence{}}) != 0);
    }
    // In stage 3 a bucket is a unit before and after, so a contiguous partitioner keeps the owners.
    CHECK(count_differences(3, c) == 0);
    CHECK(count_differences(3, c, {Mutation::state_not_moved, Fence{}}) == 0);
}

TEST_CASE("A reduction that does not wait for the backward pass is found", "[oracle][mutants]") {
    require_fence(Fence::gradients_written, {0, 1, 2, 3}, compute_slowly);
}

TEST_CASE("A backward pass that does not wait for the last reduction of its bucket is found",
          "[oracle][mutants]") {
    require_fence(Fence::gradient_lease_reuse, {0, 1, 2, 3}, communicate_ahead);
}

TEST_CASE("A forward pass that does not wait for the updated weights is found",
          "[oracle][mutants]") {
    require_fence(Fence::weights_published, {0, 1, 2}, [](Configuration& c) {
        communicate_slowly(c);
        c.evaluates = true;
    });
}

TEST_CASE("A forward pass that does not wait for the gathered weights is found",
          "[oracle][mutants]") {
    require_fence(Fence::weights_gathered, {3}, communicate_slowly);
}

TEST_CASE("An update that does not wait for the readers of the old weights is found",
          "[oracle][mutants]") {
    require_fence(Fence::weights_read, {0, 1, 2}, [](Configuration& c) {
        compute_slowly(c);
        c.evaluates = true;
    });
}

TEST_CASE("Poison that does not wait for the readers of a released unit is found",
          "[oracle][mutants]") {
    require_fence(Fence::weights_read, {3}, [](Configuration& c) {
        compute_slowly(c);
        c.is_poisoned = true;
    });
}

TEST_CASE("A gather that does not wait for the readers of the unit before is found",
          "[oracle][mutants]") {
    require_fence(Fence::parameter_lease_reuse, {3}, compute_slowly);
}

TEST_CASE("A gather on a queue of its own that does not wait for the update is found",
          "[oracle][mutants]") {
    require_fence(Fence::shards_written, {3}, [](Configuration& c) {
        communicate_slowly(c);
        c.gathers_apart = true;
    });
}

TEST_CASE("An update that does not wait for a gather on a queue of its own is found",
          "[oracle][mutants]") {
    require_fence(Fence::shards_gathered, {3}, [](Configuration& c) {
        c.gathers_apart = true; // on a queue that delays
        c.evaluates =
            // Nothing in a step waits for what is read between its last micro-step and `step`.
            true;
    });
}

TEST_CASE("A backward pass that does not wait for the loss scale is found", "[oracle][mutants]") {
    require_fence(Fence::loss_scale_captured, {0, 1, 2}, communicate_slowly);
}

TEST_CASE("A capture of the loss scale that does not wait for the readers of the old one is found",
          "[oracle][mutants]") {
    require_fence(Fence::loss_scale_read, {0, 1, 2, 3}, [](Configuration& c) {
        compute_slowly(c);
        c.micro_steps = 1;
        c.longest_delay =
            // The backward pass must fall behind the whole step that decides on the next scale.
            12000;
    });
}

TEST_CASE("A transport that does not wait for the data of its peers is found",
          "[oracle][mutants]") {
    require_fence(Fence::peers_ready, {0, 1, 2, 3}, communicate_slowly);
}

TEST_CASE("An all-reduce that does not wait for the sums of its peers is found",
          "[oracle][mutants]") {
    require_fence(Fence::peers_reduced, {0}, [](Configuration& c) {
        communicate_slowly(c);
        c.schedule =
            // One all-reduce instead of a reduce-scatter for each micro-step.
            Schedule::boundary;
    });
}

TEST_CASE("A buffer that is reused before the peers have read it is found", "[oracle][mutants]") {
    require_fence(Fence::peers_done, {0, 1, 2, 3}, communicate_ahead);
}

TEST_CASE("A shard that is updated while its last publish is still under way is found",
          "[oracle][mutants]") {
    // No rank acquires unit 1, so only the engine itself waits until the slow rank has read the
    // shards of the fast ones.
    auto const adjust = [](Configuration& c) {
        communicate_slowly(c);
        c.never_acquired = 1;
        c.delayed_rank = 2;
        c.micro_steps = 1;
        c.free_steps = 10;
        c.longest_delay = 3000;
        for (auto& shape : c.shapes) {
            shape.elements = shape.units.front() == 1 ? shape.elements : 1;
        }
    };
    for (int const stage : {1, 2}) {
        for (std::size_t index = 0; index < 5; ++index) {
            Configuration c = make_mutant_configuration(index);
            adjust(c);
            CAPTURE(stage, index);
            CHECK(count_differences(stage, c) == 0);
        }
    }
    require_fence(Fence::peers_done, {1, 2}, adjust);
}
