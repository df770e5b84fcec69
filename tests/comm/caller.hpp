#pragma once

// How the suites of conformance.hpp run: a test is called on every rank, on every kind of queue.

#include "host/queue_kinds.hpp"
#include "report.hpp"
#include "values.hpp"

#include <zero/comm/communicator.hpp>
#include <zero/core/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test {

inline constexpr int largest_world = 8;

/// @brief One rank in one test.
template <class Communicator>
struct Caller {
    Communicator* communicator;
    host::Queue* queue;
    Report* report;
    std::string kind;
    std::size_t serial =
        0; ///< number of collectives, equal on all ranks; makes values and tags differ

    [[nodiscard]] int rank() const { return communicator->rank(); }
    [[nodiscard]] int world() const { return communicator->size(); }
    [[nodiscard]] std::size_t index() const {
        return static_cast<std::size_t>(communicator->rank());
    }

    template <class T>
    void copy(T* out, T const* in, std::size_t elements) {
        queue->enqueue([=] { std::copy_n(in, elements, out); });
    }

    /// The rank at each position, as the ranks themselves say. Collective.
    [[nodiscard]] std::vector<int> ranks_by_position() {
        std::vector<std::size_t> cuts;
        for (std::size_t cut = 0; cut <= static_cast<std::size_t>(world()); ++cut) {
            cuts.push_back(cut);
        }
        std::int64_t const own = communicator->position();
        std::vector<std::int64_t> positions(cuts.back());
        communicator->all_gather(&own, positions.data(), cuts, queue,
                                 CollectiveTag{"positions", ++serial});
        queue->synchronise();
        std::vector<int> ranks;
        for (int position = 0; position < world(); ++position) {
            auto const at = std::find(positions.begin(), positions.end(), position);
            report->expect(at != positions.end(), "no rank has position() "
                                                      + std::to_string(position) + " of "
                                                      + std::to_string(world()));
            ranks.push_back(at == positions.end() ? 0 : static_cast<int>(at - positions.begin()));
        }
        return ranks;
    }

    /// The sums that the communicator must return.
    template <class T>
    [[nodiscard]] std::vector<T> sums(std::size_t begin, std::size_t end, std::size_t salt) const {
        if constexpr (requires { communicator->inner_ranks(); }) {
            return sums_in_levels<T>(communicator->inner_ranks(), communicator->outer_ranks(),
                                     begin, end, salt);
        } else {
            return sums_of<T>(world(), begin, end, salt);
        }
    }

    /// Overwrites memory that a collective no longer uses: sets all bits, which gives a NaN or -1.
    template <class T>
    void poison(std::vector<T>& memory) {
        queue->enqueue([begin = memory.data(), elements = memory.size()] {
            if (elements != 0) {
                std::memset(static_cast<void*>(begin), 0xff, elements * sizeof(T));
            }
        });
    }

    template <class T>
    void expect_equal(std::vector<T> const& found, std::vector<T> const& expected,
                      std::string const& what) {
        report->expect(equal_bits(found, expected),
                       what + " of " + name_of(dtype_of<T>()) + " on rank " + std::to_string(rank())
                           + " of " + std::to_string(world()) + ", " + kind + " queue");
    }
};

/// @brief Runs `body(communicator)` as `world` ranks. Returns false if none of them is in this
/// process; only a fixture that runs several processes reports that.
template <class Fixture, class Body>
bool runs_here(int world, Body const& body) {
    if constexpr (requires { bool{Fixture::run(world, body)}; }) {
        return Fixture::run(world, body);
    } else {
        Fixture::run(world, body);
        return true;
    }
}

/// @brief Calls `test(caller)` on every rank of groups of 1 to 8, on every kind of queue.
template <class Fixture, class Test>
void on_all_ranks(Test const& test) {
    for (int world = 1; world <= largest_world; ++world) {
        Report report;
        bool const is_here = runs_here<Fixture>(world, [&](auto& communicator) {
            auto const on_queue = [&]<class Kind>(Kind) {
                auto const queue =
                    Kind::make(static_cast<std::uint64_t>(communicator.rank() * 100 + world));
                Caller<std::remove_reference_t<decltype(communicator)>> caller{
                    &communicator, queue.get(), &report, Kind::name};
                test(caller);
                queue->synchronise();
                queue->rethrow_failure();
            };
            on_queue(InlineKind{});
            on_queue(ThreadedKind{});
            on_queue(DelayingKind{});
        });
        if (is_here) {
            report.check();
        }
    }
}

} // namespace zero::test
