#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/clean_up.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief A call that failed while an object of the CUDA layer was destroyed. What it should have
/// released is lost to the process.
struct CleanUpError {
    int code = 0;          ///< its cudaError_t, or cudaErrorUnknown for an exception; 0: no error
    char const* call = ""; ///< a string literal, such as "cudaStreamDestroy"
};

/// @brief Returns the first error of a clean-up in this process since the last call, and forgets
/// it.
///
/// Destructors cannot throw and leave no error behind as the thread's last error, so this function
/// is where their errors are reported. A runtime that shuts down is no error. After a failure of
/// the device, which every later call repeats, the error may be of earlier work. Thread-safe.
[[nodiscard]] inline CleanUpError take_clean_up_error() noexcept {
    CleanUpError error;
    detail::CleanUpRecord::instance().take(error.code, error.call);
    return error;
}

} // namespace ZERO_NAMESPACE::cuda
