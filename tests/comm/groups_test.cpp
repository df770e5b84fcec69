#include "conformance.hpp"

#include "support/ranks.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/comm/secondary.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::groups_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;
static_assert(GroupedCommunicator<Hosts>);
static_assert(GroupedCommunicator<Groups<Checked<LoopbackCommunicator>, HybridInFloat>>);
static_assert(!GroupedCommunicator<Checked<LoopbackCommunicator>>);

using Shared = Groups<LoopbackCommunicator, Secondary>;
static_assert(SecondaryCommunicator<Shared>);
static_assert(!SecondaryCommunicator<Hosts>);

/// A communicator with an option that must be equal on all ranks.
struct Optioned : LoopbackCommunicator {
    std::uint64_t option;
    Optioned(LoopbackCommunicator&& ranks, std::uint64_t value)
        : LoopbackCommunicator(std::move(ranks)), option(value) {}
    [[nodiscard]] std::uint64_t options_hash() const noexcept { return option; }
};

/// Groups as a communicator of all ranks.
struct GroupsFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        std::size_t const shard = world % 2 == 0 ? 2 : 1;
        run_ranks<Hosts>(world, {.time_out = std::chrono::seconds(60)}, {.shard = shard}, body);
    }
};

using Place = std::array<int, 5>; ///< ranks and sizes of the parts, and the replica

Place place_of(Hosts const& hosts) {
    return {hosts.shard().rank(), hosts.shard().size(), hosts.replicas().rank(),
            hosts.replicas().size(), static_cast<int>(hosts.replica())};
}

/// The places of all ranks. @param group of a rank
template <class Group>
std::vector<Place> places(int world, std::size_t shard, Group const& group) {
    return on_ranks<Place>(world, [&](LoopbackCommunicator& everyone) {
        Hosts const hosts(everyone, {.shard = shard, .group = group(everyone.rank())});
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(world); ++rank) {
            if (rank == static_cast<std::size_t>(everyone.rank())
                && hosts.replica_of(rank) != hosts.replica()) {
                throw std::logic_error("two numbers for one replica");
            }
        }
        return place_of(hosts);
    });
}

std::optional<std::size_t> consecutive(int /*rank*/) {
    return std::nullopt;
}

/// How ranks end whose options are `shard(rank)` and `group(rank)`.
template <class Shard, class Group>
std::vector<Outcome> refusals(int world, Shard const& shard, Group const& group) {
    return run_and_observe(world,
                           [&](LoopbackCommunicator& everyone) {
                               Hosts const hosts(everyone, {.shard = shard(everyone.rank()),
                                                            .group = group(everyone.rank())});
                           })
        .ranks;
}

void check_all(std::vector<Outcome> const& outcomes, char const* type, char const* text) {
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome.type == type);
        CHECK_THAT(outcome.message, contains_text(text));
    }
}

} // namespace

TEST_CASE("Groups conform as a communicator of all ranks") {
    check_sums_of<GroupsFixture, float>();
    check_gathers_of<GroupsFixture, float, std::int64_t>();
    check_broadcasts_of<GroupsFixture, bfloat16>();
    check_exchanges_of<GroupsFixture, float, bfloat16, std::int64_t, unsigned char>();
}

TEST_CASE("Consecutive ranks form a group, and the options may give the groups instead") {
    CHECK(
        places(4, 2, consecutive)
        == std::vector<Place>{{0, 2, 0, 2, 0}, {1, 2, 0, 2, 0}, {0, 2, 1, 2, 1}, {1, 2, 1, 2, 1}});
    CHECK(places(3, 3, consecutive)
          == std::vector<Place>{{0, 3, 0, 1, 0}, {1, 3, 0, 1, 0}, {2, 3, 0, 1, 0}});
    CHECK(places(2, 1, consecutive) == std::vector<Place>{{0, 1, 0, 2, 0}, {0, 1, 1, 2, 1}});
    // hosts 5, 3, 5, 3, 9, 9: replicas are numbered by their lowest rank
    auto const hosts = [](int rank) {
        return std::optional<std::size_t>(
            std::array{5U, 3U, 5U, 3U, 9U, 9U}[static_cast<std::size_t>(rank)]);
    };
    CHECK(places(6, 2, hosts)
          == std::vector<Place>{{0, 2, 0, 3, 0},
                                {0, 2, 1, 3, 1},
                                {1, 2, 0, 3, 0},
                                {1, 2, 1, 3, 1},
                                {0, 2, 2, 3, 2},
                                {1, 2, 2, 3, 2}});
}

TEST_CASE("Groups that do not divide the ranks, or that ranks give differently, are refused on "
          "every rank") {
    auto const three = [](int) { return std::size_t{3}; };
    auto const none = [](int) { return std::size_t{0}; };
    auto const two = [](int) { return std::size_t{2}; };
    auto const own = [](int rank) { return static_cast<std::size_t>(rank == 2 ? 4 : 2); };
    check_all(refusals(4, three, consecutive), "InvalidArgument",
              "zero: Groups: .shard is 3, and there are 4 ranks");
    check_all(refusals(4, none, consecutive), "InvalidArgument", "a divisor of 4");
    check_all(refusals(4, own, consecutive), "LayoutMismatch",
              ".shard is 2 on rank 0 and 4 on rank 2");
    check_all(refusals(4, two, [](int rank) { return std::optional<std::size_t>(rank == 3); }),
              "InvalidArgument", ".shard is 2, and group 0 holds 3 ranks");
    // a number like any other, not the absence of one
    auto const largest = [](int rank) {
        return std::optional<std::size_t>(rank == 3 ? 0 : std::numeric_limits<std::size_t>::max());
    };
    check_all(refusals(4, two, largest), "InvalidArgument",
              ".shard is 2, and group 18446744073709551615 holds 3 ranks; each group needs as many "
              "as .shard");
    check_all(refusals(4, two, [&](int rank) { return rank < 2 ? largest(0) : std::nullopt; }),
              "InvalidArgument", "rank 0 gives a .group and rank 2 gives none");
    check_all(
        refusals(4, two,
                 [](int rank) { return rank < 2 ? std::optional<std::size_t>(0) : std::nullopt; }),
        "InvalidArgument", "rank 0 gives a .group and rank 2 gives none");
}

TEST_CASE("Given parts must form a grid") {
    auto const outcomes = [](auto const& shard_color, auto const& replica_color, auto const& key) {
        return run_and_observe(4,
                               [&](LoopbackCommunicator& everyone) {
                                   int const rank = everyone.rank();
                                   auto shard = everyone.split(shard_color(rank), key(rank));
                                   auto replicas = everyone.split(replica_color(rank), rank);
                                   Hosts const hosts(everyone, shard, replicas);
                                   if (hosts.shard().size() != 2 || hosts.replica_of(3) != 1) {
                                       throw std::logic_error("another grid");
                                   }
                               })
            .ranks;
    };
    auto const half = [](int rank) { return rank / 2; };
    auto const parity = [](int rank) { return rank % 2; };
    auto const same = [](int rank) { return rank; };
    check_all(outcomes(half, parity, same), "returned", "");
    check_all(outcomes(half, half, same), "InvalidArgument", "the parts do not form a grid");
    check_all(outcomes(
                  half, [](int) { return 0; }, same),
              "InvalidArgument", "a group of 2 ranks and 4 replicas for 4 ranks");
    check_all(outcomes(half, parity, [](int rank) { return -rank; }), "InvalidArgument",
              "not in the order of ranks");
    // the numbers of a grid, with ranks 1 and 3 in the group of the other
    auto const crossed = [](int rank) { return rank == 0 || rank == 3 ? 0 : 1; };
    auto const by_parity = [](int rank) { return rank % 2; };
    check_all(outcomes(crossed, parity, by_parity), "InvalidArgument",
              "on rank 0 the shard group holds ranks of two replicas");
    check_all(outcomes(half, crossed, same), "InvalidArgument",
              "on rank 0 the replicas hold ranks that own different extents");
}

TEST_CASE("Ranks whose own parts are right get the error of those whose parts are wrong") {
    // ranks 4 to 7 have the numbers of a grid, with ranks 5 and 7 in the group of the other
    auto const outcomes = run_and_observe(8, [](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        bool const is_crossed = rank == 5 || rank == 7;
        auto shard = everyone.split((is_crossed ? 12 - rank : rank) / 2, rank % 2);
        auto replicas = everyone.split(rank % 2, rank);
        Hosts const hosts(everyone, shard, replicas);
    });
    check_all(outcomes.ranks, "InvalidArgument",
              "on rank 4 the shard group holds ranks of two replicas; split all ranks once");
}

TEST_CASE("A rank that throws releases the ranks of every part, and each reads the cause") {
    for (int const part : {0, 1, 2}) {
        std::vector<Outcome> outcomes(6);
        CHECK_THROWS_WITH(
            run_ranks<Hosts>(6, test_time_out, {.shard = 2},
                             [&](Hosts& hosts) {
                                 auto& outcome = outcomes[static_cast<std::size_t>(hosts.rank())];
                                 outcome = outcome_of([&] {
                                     if (hosts.rank() == 3) {
                                         throw std::runtime_error("the data of rank 3 ended");
                                     }
                                     host::InlineQueue queue;
                                     std::int64_t value = 1;
                                     for (;;) { // ends with the failure
                                         auto& waits = part == 0   ? hosts.everyone()
                                                       : part == 1 ? hosts.shard()
                                                                   : hosts.replicas();
                                         waits.all_reduce_integers(&value, 1, IntegerReduction::min,
                                                                   &queue);
                                         hosts.everyone().all_reduce_integers(
                                             &value, 1, IntegerReduction::min, &queue);
                                     }
                                 });
                                 if (outcome.type != "returned") {
                                     throw std::runtime_error(outcome.message);
                                 }
                             }),
            contains_text("the data of rank 3 ended"));
        for (Outcome const& outcome : outcomes) {
            CHECK_THAT(outcome.message, contains_text("the data of rank 3 ended"));
        }
    }
}

TEST_CASE("A failure reaches the ranks that wait in given parts, which share no other group") {
    std::vector<LoopbackCommunicator> shards[] = {
        LoopbackCommunicator::make_group(2, test_time_out),
        LoopbackCommunicator::make_group(2, test_time_out)};
    std::vector<LoopbackCommunicator> replicas[] = {
        LoopbackCommunicator::make_group(2, test_time_out),
        LoopbackCommunicator::make_group(2, test_time_out)};
    for (Outcome const& outcome :
         run_and_observe(4, [&](LoopbackCommunicator& everyone) {
             auto const rank = static_cast<std::size_t>(everyone.rank());
             Hosts hosts(everyone, shards[rank / 2][rank % 2], replicas[rank % 2][rank / 2]);
             run_rank(hosts, [&](Hosts& groups) {
                 if (rank == 3) {
                     throw std::runtime_error("the data of rank 3 ended");
                 }
                 host::InlineQueue queue;
                 std::int64_t value = 1;
                 auto& waits = rank == 2 ? groups.shard() : groups.replicas();
                 auto& part = rank == 0 ? groups.everyone() : waits;
                 part.all_reduce_integers(&value, 1, IntegerReduction::min, &queue);
             });
         }).ranks) {
        CHECK_THAT(outcome.message, contains_text("the data of rank 3 ended"));
    }
}

TEST_CASE("Consecutive ranks share a secondary copy, in each replica if there are several") {
    using Place2 = std::array<int, 3>; // rank and size of the part, and its first rank
    auto const place = [](auto const& shared, LoopbackCommunicator const& all) {
        return Place2{shared.secondary().rank(), shared.secondary().size(),
                      all.rank() - shared.secondary().rank()};
    };
    CHECK(on_ranks<Place2>(6,
                           [&](LoopbackCommunicator& everyone) {
                               Shared const shared(everyone, {.secondary = 3});
                               return place(shared, everyone);
                           })
          == std::vector<Place2>{{0, 3, 0}, {1, 3, 0}, {2, 3, 0}, {0, 3, 3}, {1, 3, 3}, {2, 3, 3}});
    auto const replicas = on_ranks<Place2>(8, [&](LoopbackCommunicator& everyone) {
        Hosts hosts(everyone, {.shard = 4});
        Groups<Hosts, Secondary> const shared(hosts, {.secondary = 2});
        if (shared.shard().size() != 4 || shared.replicas().size() != 2
            || shared.replica() != hosts.replica() || shared.replica_of(7) != 1) {
            throw std::logic_error("other roles");
        }
        return place(shared, everyone);
    });
    for (int rank = 0; rank < 8; ++rank) {
        CHECK(replicas[static_cast<std::size_t>(rank)] == Place2{rank % 2, 2, rank / 2 * 2});
    }
}

TEST_CASE("Secondary copies of a number of ranks that cannot share one are refused on every rank") {
    auto const outcomes = [](int world, auto const& secondary) {
        return run_and_observe(world,
                               [&](LoopbackCommunicator& everyone) {
                                   Shared const shared(everyone,
                                                       {.secondary = secondary(everyone.rank())});
                               })
            .ranks;
    };
    for (std::size_t const ranks : {0U, 1U, 3U, 4U, 8U}) {
        check_all(outcomes(4, [&](int) { return ranks; }), "InvalidArgument",
                  ("zero: Groups: .secondary is " + std::to_string(ranks)
                   + ", and states are cut over 4 ranks; give the number of ranks that share a "
                     "copy, a divisor of 4 that is neither 1 nor 4, or leave zero::Secondary out.")
                      .c_str());
    }
    for (int const world : {1, 2, 3}) { // none is possible
        check_all(outcomes(world, [](int) { return std::size_t{2}; }), "InvalidArgument",
                  ".secondary is 2, and states are cut over");
    }
    check_all(outcomes(4, [](int rank) { return std::size_t(rank == 3 ? 4 : 2); }),
              "LayoutMismatch", ".secondary is 2 on rank 0 and 4 on rank 3");
    // in replicas the ranks of one are divided
    check_all(run_and_observe(4,
                              [](LoopbackCommunicator& everyone) {
                                  Hosts hosts(everyone, {.shard = 2});
                                  Groups<Hosts, Secondary> const shared(hosts, {.secondary = 2});
                              })
                  .ranks,
              "InvalidArgument", ".secondary is 2, and states are cut over 2 ranks");
}

TEST_CASE("A given part for secondary copies has the same size everywhere, and lies in one "
          "replica") {
    auto const outcomes = [](auto const& color) {
        return run_and_observe(4,
                               [&](LoopbackCommunicator& everyone) {
                                   auto part = everyone.split(color(everyone.rank()), 0);
                                   Shared const shared(everyone, part);
                                   if (shared.secondary().size() != 2) {
                                       throw std::logic_error("another part");
                                   }
                               })
            .ranks;
    };
    check_all(outcomes([](int rank) { return rank % 2; }), "returned", "");
    check_all(outcomes([](int rank) { return rank == 3 ? 1 : 0; }), "LayoutMismatch",
              "the size of the secondary part is 3 on rank 0 and 1 on rank 3");
    check_all(outcomes([](int) { return 0; }), "InvalidArgument",
              "the size of the secondary part is 4, and states are cut over 4 ranks");
    auto const in_replicas = [](auto const& color) {
        return run_and_observe(8,
                               [&](LoopbackCommunicator& everyone) {
                                   Hosts hosts(everyone, {.shard = 4});
                                   auto part = everyone.split(color(everyone.rank()), 0);
                                   Groups<Hosts, Secondary> const shared(hosts, part);
                               })
            .ranks;
    };
    check_all(in_replicas([](int rank) { return rank / 2; }), "returned", "");
    check_all(in_replicas([](int rank) { return rank % 4; }), "InvalidArgument",
              "on rank 0 the secondary part holds ranks of two replicas; split the shard group");
}

TEST_CASE("A rank that throws releases the ranks that wait in the secondary part of another") {
    std::vector<Outcome> outcomes(4);
    CHECK_THROWS_WITH(
        run_ranks<Shared>(4, test_time_out, {.secondary = 2},
                          [&](Shared& shared) {
                              auto& outcome = outcomes[static_cast<std::size_t>(shared.rank())];
                              outcome = outcome_of([&] {
                                  if (shared.rank() == 3) {
                                      throw std::runtime_error("the data of rank 3 ended");
                                  }
                                  host::InlineQueue queue;
                                  std::int64_t value = 1;
                                  for (;;) { // ends with the failure
                                      shared.secondary().all_reduce_integers(
                                          &value, 1, IntegerReduction::min, &queue);
                                      shared.everyone().all_reduce_integers(
                                          &value, 1, IntegerReduction::min, &queue);
                                  }
                              });
                              throw std::runtime_error(outcome.message);
                          }),
        contains_text("the data of rank 3 ended"));
    for (Outcome const& outcome : outcomes) {
        CHECK_THAT(outcome.message, contains_text("the data of rank 3 ended"));
    }
}

TEST_CASE("Groups hash the options of all ranks and of every part") {
    using Options = std::array<std::uint64_t, 3>;
    auto const hash_with = [](auto make, Options const& options) {
        return on_ranks<std::uint64_t>(4, [&](LoopbackCommunicator& ranks) {
            int const rank = ranks.rank();
            Optioned everyone(ranks.split(0, rank), options[0]);
            Optioned part(ranks.split(rank / 2, rank), options[1]);
            Optioned across(ranks.split(rank % 2, rank), options[2]);
            return make(everyone, part, across).options_hash();
        });
    };
    auto const hybrid = [](Optioned& everyone, Optioned& shard, Optioned& replicas) {
        return Groups<Optioned, Hybrid>(everyone, shard, replicas);
    };
    auto const secondary = [](Optioned& everyone, Optioned& part, Optioned&) {
        return Groups<Optioned, Secondary>(everyone, part);
    };
    CHECK(hash_with(hybrid, {1, 2, 3}) == hash_with(hybrid, {1, 2, 3}));
    CHECK(hash_with(secondary, {1, 2, 3}) == hash_with(secondary, {1, 2, 4}));
    for (Options const& other : {Options{9, 2, 3}, Options{1, 9, 3}}) {
        CHECK(hash_with(hybrid, other) != hash_with(hybrid, {1, 2, 3}));
        CHECK(hash_with(secondary, other) != hash_with(secondary, {1, 2, 3}));
    }
    CHECK(hash_with(hybrid, {1, 2, 9}) != hash_with(hybrid, {1, 2, 3}));
}

TEST_CASE("A failure reaches the ranks that wait in a given secondary part, which shares no other "
          "group") {
    std::vector<LoopbackCommunicator> parts[] = {
        LoopbackCommunicator::make_group(2, test_time_out),
        LoopbackCommunicator::make_group(2, test_time_out)};
    for (Outcome const& outcome :
         run_and_observe(4, [&](LoopbackCommunicator& everyone) {
             auto const rank = static_cast<std::size_t>(everyone.rank());
             Shared shared(everyone, parts[rank / 2][rank % 2]);
             run_rank(shared, [&](Shared& groups) {
                 if (rank == 3) {
                     throw std::runtime_error("the data of rank 3 ended");
                 }
                 host::InlineQueue queue;
                 std::int64_t value = 1;
                 auto& part = rank == 2 ? groups.secondary() : groups.everyone();
                 part.all_reduce_integers(&value, 1, IntegerReduction::min, &queue);
             });
         }).ranks) {
        CHECK_THAT(outcome.message, contains_text("the data of rank 3 ended"));
    }
}

} // namespace zero::test::groups_test
