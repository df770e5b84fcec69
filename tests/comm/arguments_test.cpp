// Invalid arguments are rejected on their rank before anything is sent, so the group stays usable.

#include "report.hpp"
#include "values.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>

#include <vector>

namespace zero::test::arguments_test {

TEST_CASE("Invalid cuts, null pointers and unknown roots are rejected with rank and reason and "
          "change nothing") {
    auto group = LoopbackCommunicator::make_group(1);
    auto& c = group[0];
    auto const queue = HostBackend::default_compute_queue();
    float value = 1.0F;
    float const* const in = &value;
    float* const none = nullptr;
    float const* const nothing = nullptr;
    auto const cuts = cuts_of({1});
    CollectiveTag const tag{"bucket", 4};

    for (auto const& bad :
         std::vector<std::vector<std::size_t>>{{}, {0}, {0, 1, 2}, {1, 2}, {1, 0}}) {
        CHECK_THROWS_AS(c.all_reduce(in, &value, bad, queue, tag), InvalidArgument);
        CHECK_THROWS_WITH(c.reduce_scatter(in, &value, bad, queue, tag),
                          contains_text("'bucket 4' on rank 0") && contains_text("needs 2"));
        CHECK_THROWS_AS(c.all_gather(in, &value, bad, queue, tag), InvalidArgument);
    }
    CHECK_THROWS_WITH(c.reduce_scatter(nothing, &value, cuts, queue, tag),
                      contains_text("null pointer for 1 elements"));
    CHECK_THROWS_AS(c.reduce_scatter(in, none, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.all_gather(nothing, &value, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.all_gather(in, none, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.all_reduce(nothing, &value, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.all_reduce(in, none, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.broadcast(none, 1, 0, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.all_reduce_integers(nullptr, 1, IntegerReduction::sum, queue, tag),
                    InvalidArgument);
    CHECK_THROWS_AS(c.all_reduce_integers(nullptr, 1, 1, queue, tag), InvalidArgument);
    CHECK_THROWS_WITH(c.broadcast(&value, 1, 1, queue, tag),
                      contains_text("rank 1, which is not in the group of 1"));
    CHECK_THROWS_AS(c.broadcast(&value, 1, -1, queue, tag), InvalidArgument);
    CHECK_NOTHROW(c.broadcast(none, 0, 0, queue, tag));
    CHECK_NOTHROW(c.all_reduce(nothing, none, cuts_of({0}), queue, tag));

    c.all_reduce(in, &value, cuts, queue, tag);
    CHECK(value == 1.0F);
    CHECK(c.traffic()[CollectiveKind::all_reduce] == CollectiveCount{2, 0, 0});
}

TEST_CASE("Cuts that descend are rejected on every rank") {
    auto group = LoopbackCommunicator::make_group(2);
    auto const queue = HostBackend::default_compute_queue();
    std::vector<float> values(2);
    float const* const in = values.data();
    std::vector<std::size_t> const bad{0, 2, 1};
    for (LoopbackCommunicator& c : group) {
        CHECK_THROWS_AS(c.all_gather(in, values.data(), bad, queue), InvalidArgument);
        CHECK_THROWS_AS(c.all_reduce(in, values.data(), bad, queue), InvalidArgument);
        CHECK_THROWS_AS(c.reduce_scatter(in, values.data(), bad, queue), InvalidArgument);
    }
}

TEST_CASE("A group has at least one rank") {
    for (int const world : {0, -1, -1000}) {
        CHECK_THROWS_AS(LoopbackCommunicator::make_group(world), InvalidArgument);
        CHECK_THROWS_WITH(run_ranks(world, [](LoopbackCommunicator&) {}),
                          contains_text("group of " + std::to_string(world)));
    }
}

} // namespace zero::test::arguments_test
