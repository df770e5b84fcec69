#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/error.hpp"
#include "../../core/source_location.hpp"
#include "../nccl_error.hpp"
#include "../nccl_library.hpp"
#include "../nccl_system.hpp"

#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns the text of a failure: "unhandled cuda error (NCCL code 1; NCCL's last message:
/// ...)".
inline std::string describe(NcclLibrary& nccl, NcclResult result, NcclHandle handle) {
    char const* const last = nccl.last_error(handle);
    bool const has_last = last != nullptr && *last != '\0';
    return zero::detail::text({nccl.error_string(result), " (NCCL code ", static_cast<int>(result),
                               has_last ? "; NCCL's last message: " : "", has_last ? last : "",
                               ')'});
}

/// @brief Throws for every result but success and "in progress".
/// @param what the name of the function, or what was done, for the message
/// @throws NcclError
inline void require_success(NcclLibrary& nccl, NcclResult result, std::string_view what,
                            NcclHandle handle = nullptr,
                            SourceLocation where = SourceLocation::current()) {
    if (result != NcclResult::success && result != NcclResult::in_progress) {
        throw NcclError(
            zero::detail::text({"zero: ", what, " failed: ", describe(nccl, result, handle),
                                ". NCCL_DEBUG=INFO shows more."}),
            where, static_cast<int>(result));
    }
}

/// @brief Throws for every code of the CUDA runtime but success. @throws CommunicatorError
inline void require_success(NcclSystem& system, int code, std::string_view what,
                            SourceLocation where = SourceLocation::current()) {
    if (code != 0) {
        throw CommunicatorError(
            zero::detail::text({"zero: ", what, " failed: ", system.error_string(code),
                                " (CUDA code ", code, ")."}),
            where, code);
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail
