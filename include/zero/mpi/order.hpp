#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::mpi {

/// @brief The order in which `mpi::Communicator` adds the values of the ranks.
enum class Order : std::uint8_t {
    rank,    ///< from rank 0 on, in float, rounded once: the bits of every other transport
    library, ///< that of MPI_Ireduce_scatter and MPI_Ireduce for float, which may be faster;
             ///< bfloat16 and float16 are added in rank order, because MPI has no such types, and
             ///< so are the values of two ranks, whose sums have one order
};

} // namespace ZERO_NAMESPACE::mpi
