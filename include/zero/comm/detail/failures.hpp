#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <exception>
#include <mutex>
#include <vector>

namespace ZERO_NAMESPACE::detail {

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

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "failures.ipp"
#endif
