#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/source_location.hpp"
#include "../nccl_error.hpp"
#include "../nccl_library.hpp"

#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief "unhandled cuda error (NCCL code 1; NCCL's last message: ...)"
inline std::string describe(NcclLibrary& nccl, NcclResult result, NcclHandle handle) {
    char const* const last = nccl.last_error(handle);
    bool const has_last = last != nullptr && *last != '\0';
    return zero::detail::text({nccl.error_string(result), " (NCCL code ", static_cast<int>(result),
                               has_last ? "; NCCL's last message: " : "", has_last ? last : "",
                               ')'});
}

/// @brief Throws for everything but success and "in progress"; `what` is the function's name or
/// what was done.
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

/// @brief The same for a code of the CUDA runtime.
inline void require_success(NcclSystem& system, int code, std::string_view what,
                            SourceLocation where = SourceLocation::current()) {
    if (code != 0) {
        throw CommunicatorError(
            zero::detail::text({"zero: ", what, " failed: ", system.error_string(code),
                                " (CUDA code ", code, ")."}),
            where, code);
    }
}

/// @brief 22809 is "2.28.9", 2708 is "2.7.8": the code changed with 2.9.
inline std::string nccl_version_text(int version) {
    int const major_unit = version < 10000 ? 1000 : 10000;
    return zero::detail::text(
        {version / major_unit, '.', version % major_unit / 100, '.', version % 100});
}

/// @brief A library of the same major version that is not older than the header fits: structures of
/// newer headers are unknown to older libraries.
/// @throws NcclVersionMismatch naming both
inline void require_matching_version(NcclLibrary& nccl) {
    int library = 0;
    require_success(nccl, nccl.get_version(library), "ncclGetVersion");
    int const header = nccl.header_version();
    auto const major = [](int version) {
        return version < 10000 ? version / 1000 : version / 10000;
    };
    if (library < header || major(library) != major(header)) {
        zero::detail::throw_error<NcclVersionMismatch>(
            {"zero: the program was compiled with the header of NCCL ", nccl_version_text(header),
             " and runs with the library of NCCL ", nccl_version_text(library),
             "; the library must be of the same major version and not older. Compile with the "
             "header that lies beside the library "
             "(CMake: -DNCCL_ROOT=...), or let the loader find the newer library "
             "(LD_LIBRARY_PATH)."});
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail
