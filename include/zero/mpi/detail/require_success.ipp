#pragma once

#include "require_success.hpp"

#include "../../core/detail/text.hpp"
#include "../mpi_error.hpp"
#include "mpi.hpp"

#include <array>
#include <string_view>

namespace ZERO_NAMESPACE::mpi::detail {

[[noreturn]] ZERO_COLD_INLINE void throw_mpi_error(int result, char const* what) {
    std::array<char, MPI_MAX_ERROR_STRING> message{};
    int length = 0;
    int error_class = result;
    MPI_Error_string(result, message.data(), &length);
    MPI_Error_class(result, &error_class);
    throw MpiError(
        zero::detail::text({"zero: ", what, " failed: ",
                            std::string_view(message.data(), static_cast<std::size_t>(length))}),
        SourceLocation::current(), error_class);
}

ZERO_INLINE void require_success(int result, char const* what) {
    if (result != MPI_SUCCESS) {
        throw_mpi_error(result, what);
    }
}

} // namespace ZERO_NAMESPACE::mpi::detail
