#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../collective_tag.hpp"
#include "polled_time.hpp"

#include <atomic>
#include <condition_variable> // also declares clocks and durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Counts ranks that are threads of this process, as long as it exists.
class RanksInProcess {
public:
    explicit RanksInProcess(std::size_t ranks) noexcept : _ranks(ranks) { count() += ranks; }
    RanksInProcess(RanksInProcess const&) = delete;
    RanksInProcess& operator=(RanksInProcess const&) = delete;
    ~RanksInProcess() { count() -= _ranks; }

    /// @brief The ranks of all such objects.
    static std::atomic<std::size_t>& count() noexcept {
        static std::atomic<std::size_t> ranks{0};
        return ranks;
    }

private:
    std::size_t _ranks;
};

/// @brief A barrier for the threads of W ranks, with time-out and abort. No data passes through it.
/// Used by the loopback transport.
///
/// `enter` succeeds for all ranks or for none. Until the last rank arrives, an abort, a time-out or
/// a rank that left makes it fail for all; afterwards it has succeeded for all. `pass` cannot fail
/// and cannot be interrupted, because all ranks that entered reach it without waiting for anything
/// else. So no rank leaves a collective while another rank is still inside it, even after an error.
class Rendezvous {
public:
    using Duration = std::chrono::milliseconds; ///< type of time-outs

    /// @param world number of ranks, at least 1
    /// @param time_out how long `enter` waits for the last rank, less pauses of the whole process
    /// @param shared the mutex of a family of groups; null: the group is alone
    Rendezvous(std::size_t world, Duration time_out, std::mutex* shared = nullptr);

    /// @brief The time after which a rank that waits looks whether it waits in vain.
    static constexpr Duration look{100};

    /// @brief Waits until all ranks have entered. The tag names the collective in errors.
    /// @param on_look called without the lock every now and then while the rank waits
    /// @param on_last called by the last rank, before the others continue
    /// @throws Aborted with the cause; TimedOut naming the missing ranks; CollectiveMismatch if
    /// `end_if_stuck` found that the rank waits in vain
    void enter(std::size_t rank, CollectiveTag const& tag, FunctionRef<> on_look = {},
               FunctionRef<> on_last = {});

    /// @brief Ends the groups whose ranks wait for each other: each absent rank of such a group
    /// waits in another one, on the thread that made its last call or runs its body. All that wait
    /// there get CollectiveMismatch. A rank that computes, or of which no thread is known, may
    /// come.
    /// @param family groups that share a mutex @throws std::bad_alloc
    static void end_if_stuck(std::span<Rendezvous* const> family);

    /// @brief Waits until all ranks have reached this point. Only after `enter`.
    void pass();

    /// @brief Makes all current and later calls of `enter` fail. Only the first cause is kept. With
    /// `is_provisional` the other ranks wait a moment for a better cause, which the code that
    /// catches the exception may provide.
    void abort(std::string_view cause, bool is_provisional) noexcept;

    /// @brief Aborts because a rank no longer takes part. That is not a failure, and does not
    /// replace one. If it is provisional, the other ranks wait a moment for the reason why the rank
    /// has left.
    void leave(std::string_view cause, bool is_provisional = false) noexcept;

    /// @brief Begins and ends a run of `run_rank` on a rank. A peer that waits in its run number n
    /// for a rank that has ended its run number n waits in vain, so `enter` fails.
    void begin_run(std::size_t rank) noexcept;
    void end_run(std::size_t rank) noexcept;

    /// @brief Returns the cause of an abort or a time-out; empty before.
    [[nodiscard]] std::string cause() const;

    /// @brief Returns the cause if it is a failure; empty before, and if a rank left.
    [[nodiscard]] std::string failure() const;

private:
    /// The time that the other ranks wait for a better cause after a provisional one.
    static constexpr Duration grace{1000};

    /// The longest time-out: a deadline must be representable.
    static constexpr Duration longest = std::chrono::hours(24 * 365);

    static bool has_moved(std::atomic<std::uint64_t> const& counter, std::uint64_t from) noexcept {
        return counter.load(std::memory_order_acquire) != from;
    }

    static bool spin(std::atomic<std::uint64_t> const& counter, std::uint64_t from) noexcept;
    void end(std::string_view cause, bool is_provisional, bool was_left) noexcept;
    void abort_if_finished(std::size_t rank);
    [[noreturn]] void give_up(std::size_t rank, CollectiveTag const& tag);
    void wait_for_others(std::size_t rank, std::uint64_t meeting, CollectiveTag const& tag,
                         FunctionRef<> on_look);
    void throw_if_aborted(std::size_t rank, CollectiveTag const& tag) const;

    /// The runs of `run_rank` on one rank. A run inside another one is a part of that.
    struct Runs {
        std::size_t begun = 0;
        std::size_t ended = 0;
        std::size_t depth = 0;
    };

    /// A rank of the group.
    struct Place {
        CollectiveTag const* waits = nullptr; ///< null: the rank is not here
        std::uint64_t thread = 0; ///< which made its last call, or runs its body; 0: none
    };

    /// A rank that waits.
    struct Waiting {
        Rendezvous const* group = nullptr; ///< null: there is none
        std::size_t rank = 0;
    };

    static std::uint64_t this_thread() noexcept;
    static Waiting find_stuck(std::span<Rendezvous* const> family, std::uint64_t thread) noexcept;
    static std::size_t name_of(std::span<Rendezvous* const> family,
                               Waiting const& waiting) noexcept;
    [[nodiscard]] Waiting first_in_vain(std::span<Rendezvous* const> family) const noexcept;

    std::size_t _world;
    Duration _time_out;
    std::mutex _own;
    std::mutex& _mutex;
    std::condition_variable _changed;
    std::atomic<std::uint64_t> _meeting{0};
    std::atomic<std::uint64_t> _passing{0};
    std::atomic<std::size_t> _passed{0};
    std::size_t _arrived = 0;
    std::vector<Place> _places; ///< by rank
    std::vector<Runs> _runs;
    bool _is_aborted = false;
    bool _is_provisional = false;
    bool _was_left = false;
    bool _is_stuck = false;    ///< only inside `end_if_stuck`
    bool _is_mismatch = false; ///< ended by `end_if_stuck`
    std::chrono::steady_clock::time_point _grace_end{};
    std::string _cause;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "rendezvous.ipp"
#endif
