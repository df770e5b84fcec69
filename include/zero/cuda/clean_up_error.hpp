#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/runtime/clean_up.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief A call that failed while an object of the CUDA layer was destroyed. The process has lost
/// the resource that the call should have released.
struct CleanUpError {
    int code = 0; ///< cudaError_t of the call; cudaErrorUnknown for an exception; 0: no error
    char const* call = ""; ///< a string literal, such as "cudaStreamDestroy"
};

/// @brief Returns the first error of a clean-up in this process since the last call, and forgets
/// it.
///
/// Destructors cannot throw and leave no error behind as the thread's last error, so this function
/// is where their errors are reported. A call that fails because the runtime is shutting down is
/// not an error. A failed device makes every later call fail, so the error may come from earlier
/// work. Thread-safe.
[[nodiscard]] inline CleanUpError take_clean_up_error() noexcept {
    CleanUpError error;
    detail::CleanUpRecord::instance().take(error.code, error.call);
    return error;
}

} // namespace ZERO_NAMESPACE::cuda
