#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/hash.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../any_parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns whether every rank may compute the initial values of a bucket, so that each owner
/// fills its extent. The same on every rank.
[[gnu::cold]] inline bool is_filled_by_owners(FlatLayout const& layout, std::size_t bucket,
                                              std::span<AnyParameter const> parameters) {
    for (Piece const& piece : layout.pieces(bucket)) {
        if (!parameters[piece.parameter].is_deterministic) {
            return false;
        }
    }
    return true;
}

/// @brief Hashes which parameters every rank may initialise, and which of these have an
/// initialiser.
[[gnu::cold]] inline std::uint64_t
hash_of_initialisation(std::span<AnyParameter const> parameters) noexcept {
    Hash hash;
    for (AnyParameter const& parameter : parameters) {
        bool const is_called = parameter.initialise ? parameter.is_deterministic : false;
        hash.add(parameter.is_deterministic).add(is_called);
    }
    return hash.value();
}

} // namespace ZERO_NAMESPACE::detail
