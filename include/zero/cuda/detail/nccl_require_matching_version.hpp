#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../nccl_error.hpp"
#include "../nccl_library.hpp"
#include "nccl_require_success.hpp"

#include <string>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns a version as text: 22809 is "2.28.9", 2708 is "2.7.8", because NCCL changed the
/// encoding with 2.9.
inline std::string nccl_version_text(int version) {
    int const major_unit = version < 10000 ? 1000 : 10000;
    return zero::detail::text(
        {version / major_unit, '.', version % major_unit / 100, '.', version % 100});
}

/// @brief Throws unless the loaded library has the major version of the header and is not older:
/// older libraries do not know the structures of newer headers. Every start of a communicator calls
/// it.
/// @throws NcclVersionMismatch naming both versions
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
