#pragma once

// The requirements of every communicator that can be split, in addition to conformance.hpp. The
// fixture is the same; its communicator is a SplittableCommunicator:
//
//     check_split<Fixture>();
//     check_abort_of_parts<Fixture>();

#include "conformance.hpp"

#include "support/outcome.hpp"

#include <zero/comm/communicator.hpp>
#include <zero/host/inline_queue.hpp>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test {

/// @brief Returns the sum of one number of each rank.
template <class Communicator>
std::int64_t sum_over(Communicator& communicator, std::int64_t value) {
    host::InlineQueue queue;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue, {"sum", 0});
    return value;
}

/// @brief Colors form groups, keys order them, and parents and parts live independently.
template <class Fixture>
void check_split() {
    for (int const world : {2, 3, 4, 7}) {
        Report report;
        bool const is_here = runs_here<Fixture>(world, [&](auto& parent) {
            using C = std::remove_reference_t<decltype(parent)>;
            static_assert(SplittableCommunicator<C>);
            int const rank = parent.rank();
            // the last ranks first; rank 0 alone
            std::optional<C> part(parent.split(rank == 0 ? 0 : 5, -rank));
            report.expect(part->size() == (rank == 0 ? 1 : world - 1), "the size of a part");
            report.expect(part->rank() == (rank == 0 ? 0 : world - 1 - rank),
                          "the rank in a part, by its key");
            report.expect(sum_over(*part, rank) == (rank == 0 ? 0 : world * (world - 1) / 2),
                          "the sum of a part");
            report.expect(sum_over(parent, 1) == world, "the sum of all");

            C equal = parent.split(1, 0);
            report.expect(equal.size() == world && equal.rank() == rank,
                          "the old ranks order equal keys");
            std::optional<C> half(equal.split(rank % 2, rank));
            int const ranks = (world + 1 - rank % 2) / 2;
            report.expect(half->size() == ranks && half->rank() == rank / 2, "a part of a part");
            report.expect(sum_over(*half, 1) == ranks, "the sum of a part of a part");

            part.reset();
            half.reset();
            report.expect(sum_over(equal, 1) == world, "a part after its part ended");
            report.expect(sum_over(parent, 1) == world, "the parent after a part ended");

            std::vector<float> const send(static_cast<std::size_t>(world), 1.0F);
            std::vector<std::size_t> cuts;
            for (std::size_t cut = 0; cut <= send.size(); ++cut) {
                cuts.push_back(cut);
            }
            float own = 0.0F;
            host::InlineQueue queue;
            equal.reduce_scatter(send.data(), &own, cuts, &queue, {"own", 0});
            report.expect(own == static_cast<float>(world), "a reduce-scatter of a part");
            sum_over(parent, 1); // no rank ends before the others are done
        });
        if (is_here) {
            report.check();
        }
    }
}

/// @brief An abort of a group reaches its parts, and an abort of a part reaches the group and the
/// other parts.
template <class Fixture>
void check_abort_of_parts() {
    for (bool const is_of_part : {false, true}) {
        Report report;
        bool const is_here = runs_here<Fixture>(4, [&](auto& parent) {
            auto part = parent.split(parent.rank() / 2, 0);
            sum_over(part, 1);
            sum_over(parent, 1);
            if (parent.rank() == 3) {
                if (is_of_part) {
                    part.abort("rank 3 has a reason");
                } else {
                    parent.abort("rank 3 has a reason");
                }
            }
            // The aborted rank and its peers, in either group, learn the cause.
            std::string const text = message_of<CommunicatorError>([&] {
                for (int call = 0; call < 1000; ++call) {
                    sum_over(part, 1); // of ranks 0 and 1: until the abort arrives
                    sum_over(parent, 1);
                }
            });
            report.expect(contains(text, "rank 3 has a reason"), text);
            std::string const other = message_of<CommunicatorError>([&] { sum_over(part, 1); });
            report.expect(contains(other, "rank 3 has a reason"), other);
            std::string const own = message_of<CommunicatorError>([&] { sum_over(parent, 1); });
            report.expect(contains(own, "rank 3 has a reason"), own);
        });
        if (is_here) {
            report.check();
        }
    }
}

} // namespace zero::test
