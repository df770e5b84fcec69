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
        CHECK_THROWS_WITH(c.exchange(in, &value, bad, queue, tag),
                          contains_text("exchange 'bucket 4' on rank 0"));
    }
    CHECK_THROWS_AS(c.exchange(nothing, &value, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_AS(c.exchange(in, none, cuts, queue, tag), InvalidArgument);
    CHECK_THROWS_WITH(c.exchange(in, &value, cuts, queue, tag),
                      contains_text("exchange of 1 float32 ('bucket 4'")
                          && contains_text("receives into the memory that it sends"));
    CHECK_THROWS_WITH(c.reduce_scatter(nothing, &value, cuts, queue, tag),
                      contains_text("null pointer for 1 elements"));
    CHECK_THROWS_AS(c.reduce_scatter(in, none, cuts, queue, tag), InvalidArgument);
    auto const in_pieces = [&](std::vector<SentPiece> const& pieces, float* sum) {
        c.reduce_scatter(SentPieces<float>{pieces}, sum, cuts, queue, tag, false);
    };
    CHECK_THROWS_WITH(in_pieces({}, &value),
                      contains_text("'bucket 4' on rank 0 got no pieces of 1 elements"));
    CHECK_THROWS_WITH(in_pieces({{in, 0, 2}}, &value),
                      contains_text("a piece of 2 elements at 0") && contains_text("after the 1"));
    CHECK_THROWS_WITH(in_pieces({{in, 0, 1}, {in, 0, 1}}, &value),
                      contains_text("before the end of the one before it (1)"));
    CHECK_THROWS_AS(in_pieces({{in, 2, 0}}, &value), InvalidArgument);
    CHECK_THROWS_AS(in_pieces({{in, 0, ~std::size_t{0}}}, &value), InvalidArgument);
    CHECK_THROWS_AS(in_pieces({{in, 0, 1}}, none), InvalidArgument);
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
    CHECK_NOTHROW(c.exchange(nothing, none, cuts_of({0}), queue, tag));

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
        CHECK_THROWS_AS(c.exchange(in, values.data(), bad, queue), InvalidArgument);
    }
}

TEST_CASE(
    "An exchange refuses every overlap of its memory, and memory that only touches is apart") {
    std::vector<float> memory(40);
    auto const cuts = cuts_of({4, 0, 3});
    auto const is_refused = [&](std::size_t rank, std::size_t from, std::size_t to) {
        detail::GroupPlace const place{rank, 3};
        try {
            (void)place.exchange(DType::float32, memory.data() + from, memory.data() + to, cuts,
                                 {"pieces", 0});
            return false;
        } catch (InvalidArgument const&) {
            return true;
        }
    };
    CHECK(is_refused(0, 10, 10)); // 7 elements are sent and 12 received
    CHECK(is_refused(0, 10, 16));
    CHECK_FALSE(is_refused(0, 10, 17));
    CHECK(is_refused(0, 20, 9));
    CHECK_FALSE(is_refused(0, 20, 8));
    CHECK_FALSE(is_refused(1, 10, 12)); // receives nothing
    CHECK(is_refused(2, 10, 2));        // 9 are received
    CHECK_FALSE(is_refused(2, 10, 1));
}

TEST_CASE("A group has at least one rank") {
    for (int const world : {0, -1, -1000}) {
        CHECK_THROWS_AS(LoopbackCommunicator::make_group(world), InvalidArgument);
        CHECK_THROWS_WITH(run_ranks(world, [](LoopbackCommunicator&) {}),
                          contains_text("group of " + std::to_string(world)));
    }
}

} // namespace zero::test::arguments_test
