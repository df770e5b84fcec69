#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The part of a step that a collective belongs to. A `Timed` communicator records it under
/// the phase with the same name.
enum class CollectivePurpose : std::uint8_t {
    other,  ///< what the operation is usually called for: sums and exchanges are gradients, sums of
            ///< integers decide, and the others publish
    gather, ///< weights for the forward and the backward pass
    publish, ///< updated weights
    reduce,  ///< gradients
    decide   ///< whether and how a step updates
};

/// @brief The purpose of a collective, for messages and timelines. Transports that check their
/// calls also compare `what`, `index` and `engine` between ranks.
///
/// The texts are valid until the call of the collective returns; code that keeps them copies them.
struct CollectiveTag {
    char const* what = "";      ///< "gradients of bucket", "values of parameter", ...
    std::size_t index = 0;      ///< number of the bucket, parameter, ...
    char const* parameter = ""; ///< name of the first parameter in the buffer, if there is one; for
                                ///< messages only
    char const* context = "";   ///< why the collective is called, if that helps to find a rank that
                                ///< calls another one; for messages only
    CollectivePurpose purpose = CollectivePurpose::other; ///< for timelines only
    std::uint32_t engine = 0; ///< number of the engine that calls, so that ranks which use several
                              ///< in different orders are told; 0: none, or `index` contains it
};

/// @brief The operation of `all_reduce_integers`.
enum class IntegerReduction : std::uint8_t { sum, min };

} // namespace ZERO_NAMESPACE
