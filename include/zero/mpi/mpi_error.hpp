#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE::mpi {

/// @brief A function of MPI failed. `code()` is its error class, such as MPI_ERR_OTHER.
class MpiError : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

} // namespace ZERO_NAMESPACE::mpi
