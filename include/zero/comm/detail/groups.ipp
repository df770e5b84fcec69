#pragma once

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../groups.hpp"

#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_same_number(std::span<std::uint64_t const> asked, std::size_t words,
                                          char const* what) {
    for (std::size_t rank = 1; rank * words < asked.size(); ++rank) {
        if (std::uint64_t const other = asked[rank * words]; other != asked[0]) {
            throw_error<LayoutMismatch>({"zero: Groups: ", what, " is ", asked[0],
                                         " on rank 0 and ", other, " on rank ", rank,
                                         "; give the same number on all ranks."});
        }
    }
}

ZERO_COLD_INLINE std::vector<std::size_t> plan_groups(std::span<std::uint64_t const> asked) {
    std::size_t const world = asked.size() / words_of_options;
    std::uint64_t const shard = asked[0];
    require_same_number(asked, words_of_options, ".shard");
    if (shard == 0 || world % shard != 0) {
        throw_error<InvalidArgument>(
            {"zero: Groups: .shard is ", shard, ", and there are ", world,
             " ranks; give the number of ranks that share one copy of the states, a divisor of ",
             world, "."});
    }
    std::vector<std::size_t> replicas(world);
    std::vector<std::uint64_t> groups; // by replica
    for (std::size_t rank = 0; rank < world; ++rank) {
        bool const is_given = asked[rank * words_of_options + 1] != 0;
        if (is_given != (asked[1] != 0)) {
            throw_error<InvalidArgument>({"zero: Groups: rank ", asked[1] == 0 ? rank : 0,
                                          " gives a .group and rank ", asked[1] == 0 ? 0 : rank,
                                          " gives none; give it on all ranks or on none."});
        }
        std::uint64_t const group = is_given ? asked[rank * words_of_options + 2] : rank / shard;
        std::size_t replica = 0;
        while (replica < groups.size() && groups[replica] != group) {
            ++replica;
        }
        if (replica == groups.size()) {
            groups.push_back(group);
        }
        replicas[rank] = replica;
    }
    std::vector<std::size_t> ranks(groups.size(), 0);
    for (std::size_t const replica : replicas) {
        ++ranks[replica];
    }
    for (std::size_t replica = 0; replica < groups.size(); ++replica) {
        if (ranks[replica] != shard) {
            throw_error<InvalidArgument>({"zero: Groups: .shard is ", shard, ", and group ",
                                          groups[replica], " holds ", ranks[replica],
                                          " ranks; each group needs as many as .shard."});
        }
    }
    return replicas;
}

ZERO_COLD_INLINE std::vector<std::size_t> check_parts(std::span<std::uint64_t const> given) {
    std::size_t const world = given.size() / words_of_parts;
    auto const refuse = [](std::size_t rank, std::string const& why) {
        throw_error<InvalidArgument>(
            {"zero: Groups: the parts do not form a grid: ", why, " (rank ", rank,
             "); split all ranks once by the group and once by the number in it, with the rank as "
             "the key."});
    };
    std::vector<std::size_t> replicas(world);
    std::vector<std::size_t> next(world, 0); // number in the group that comes next, by replica
    for (std::size_t rank = 0; rank < world; ++rank) {
        std::uint64_t const* const own = given.data() + rank * words_of_parts;
        if (own[0] != given[0] || own[2] != given[2] || own[0] * own[2] != world) {
            refuse(rank, text({"a group of ", own[0], " ranks and ", own[2], " replicas for ",
                               world, " ranks"}));
        }
        replicas[rank] = static_cast<std::size_t>(own[3]);
        if (rank == 0 && own[3] != 0) {
            refuse(rank, text({"rank 0 is in replica ", own[3], ", not in replica 0"}));
        }
        if (std::size_t& number = next[replicas[rank]]; own[1] != number++) {
            refuse(rank, text({"number ", own[1], " of replica ", own[3],
                               " is taken, or not in the order of ranks"}));
        }
    }
    return replicas;
}

ZERO_COLD_INLINE void check_found(std::span<std::uint64_t const> found) {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        if (auto const error = static_cast<PartsError>(found[rank]); error != PartsError::none) {
            throw_error<InvalidArgument>(
                {"zero: Groups: on rank ", rank, " the ",
                 error == PartsError::mixed_shard
                     ? "shard group holds ranks of two replicas"
                     : "replicas hold ranks that own different extents",
                 "; split all ranks once by the group and once by the number in it."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
