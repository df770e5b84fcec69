#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/error.hpp"
#include "../loopback.hpp"

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief What the ranks threw; the cause is the first exception that is not a consequence of
/// another rank's.
class Failures {
public:
    explicit Failures(std::size_t world) { _failures.reserve(world + 1); }

    /// Called inside a catch block. None is dropped before all ranks have ended, so none is
    /// destroyed by a rank that did not throw it.
    void keep(bool is_consequence) noexcept {
        std::lock_guard const lock(_mutex);
        _failures.push_back({std::current_exception(), is_consequence});
    }

    /// Called when all ranks have ended.
    void rethrow_cause() const {
        for (Failure const& failure : _failures) {
            if (!failure.is_consequence) {
                std::rethrow_exception(failure.exception);
            }
        }
        if (!_failures.empty()) {
            std::rethrow_exception(_failures.front().exception);
        }
    }

private:
    struct Failure {
        std::exception_ptr exception;
        bool is_consequence;
    };

    std::mutex _mutex;
    std::vector<Failure> _failures;
};

/// @brief Runs one rank. The group learns of its exception as soon as the body has unwound, and of
/// its end.
template <class Communicator>
void run_rank(Communicator& communicator, FunctionRef<Communicator&> body,
              Failures& failures) noexcept {
    try {
        std::string const name = detail::text({"rank ", communicator.rank()});
        try {
            body(communicator);
            communicator.abort(detail::text(
                {name,
                 " finished and left the group"})); // who meets later would wait for it in vain
        } catch (Aborted const& error) {
            failures.keep(true);
            communicator.abort(detail::text({name, ": ", error.what()}));
        } catch (std::exception const& error) {
            failures.keep(false);
            communicator.abort(detail::text({name, ": ", error.what()}));
        }
    } catch (...) { // also when there was no memory for a text
        failures.keep(false);
        communicator.abort("a rank threw an exception that is no std::exception");
    }
}

/// @brief What `run_ranks` does, compiled once for all bodies.
template <class Communicator>
void run_group(int world, LoopbackOptions const& options, FunctionRef<Communicator&> body) {
    auto communicators = Communicator::make_group(world, options);
    Failures failures(communicators.size());
    std::vector<std::thread> threads;
    try {
        threads.reserve(communicators.size());
        for (std::size_t rank = 1; rank < communicators.size(); ++rank) {
            threads.emplace_back([&, rank] { run_rank(communicators[rank], body, failures); });
        }
    } catch (...) { // the system has no further thread
        failures.keep(false);
        communicators[0].abort("a rank could not be started");
    }
    if (threads.size() + 1 == communicators.size()) {
        run_rank(communicators[0], body, failures);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    failures.rethrow_cause();
}

} // namespace ZERO_NAMESPACE::detail
