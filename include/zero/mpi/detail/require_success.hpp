#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::mpi::detail {

/// @brief Checks the result of a function of MPI. @param what the function, for the message
/// @throws MpiError
void require_success(int result, char const* what);

} // namespace ZERO_NAMESPACE::mpi::detail

#if !defined(ZERO_COMPILED)
#include "require_success.ipp"
#endif
