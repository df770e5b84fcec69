#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../loopback_options.hpp"

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `body(rank)` for each rank, on a thread of its own except for rank 0, and joins all
/// threads. Used by `run_group`.
/// @param release called with the rank, a cause and whether the rank has thrown, when it has
/// finished or thrown; does not throw
/// @throws the first exception of a rank that is not a consequence of another one
void run_threads(std::size_t world, FunctionRef<std::size_t> body,
                 FunctionRef<std::size_t, std::string_view, bool> release);

/// @brief Collects the exceptions of the ranks of a group. Used by `run_group`.
///
/// The cause is the first exception that is not a consequence of another rank's exception.
class Failures {
public:
    explicit Failures(std::size_t world);

    /// @brief Stores the current exception. Called inside a catch block. Exceptions are kept until
    /// all ranks have ended, so none is destroyed by a rank that did not throw it.
    void keep(bool is_consequence) noexcept;

    /// @brief Rethrows the cause, if there is one. Called after all ranks have ended.
    void rethrow_cause() const;

private:
    struct Failure {
        std::exception_ptr exception;
        bool is_consequence;
    };

    std::mutex _mutex;
    std::vector<Failure> _failures;
};

/// @brief Calls `abort(cause)` with the first line of the current exception and the rank. Called
/// inside a catch block.
/// @param abort does not throw
void report_failure(std::size_t rank, FunctionRef<std::string_view> abort) noexcept;

/// @brief Returns the cause for peers that wait for a rank whose body has returned.
[[nodiscard]] std::string finished_text(std::size_t rank);

/// @brief The scope of one body of `run_rank`. Tells communicators that have `begin_run` and
/// `end_run`.
template <class Communicator>
class RankBody {
public:
    explicit RankBody(Communicator& communicator) noexcept : _communicator(&communicator) {
        if constexpr (requires { communicator.begin_run(); }) {
            communicator.begin_run();
        }
    }
    RankBody(RankBody const&) = delete;
    RankBody& operator=(RankBody const&) = delete;
    ~RankBody() {
        if constexpr (requires { _communicator->end_run(); }) {
            _communicator->end_run();
        }
    }

private:
    Communicator* _communicator;
};

/// @brief Runs `body` on every rank of a new group. The implementation of `run_ranks`, compiled
/// once per type of communicator.
template <class Communicator>
void run_group(int world, LoopbackOptions const& options, FunctionRef<Communicator&> body) {
    auto communicators = Communicator::make_group(world, options);
    run_threads(
        communicators.size(), [&](std::size_t rank) { body(communicators[rank]); },
        [&](std::size_t rank, std::string_view cause, bool has_failed) {
            if constexpr (requires { communicators[rank].leave(cause); }) {
                if (!has_failed) {
                    communicators[rank].leave(cause);
                    return;
                }
            }
            communicators[rank].abort(cause);
        });
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "run_threads.ipp"
#endif
