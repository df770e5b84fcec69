#pragma once

#include "family.hpp"

namespace ZERO_NAMESPACE::mpi::detail {

ZERO_INLINE Family::Family(bool is_serialized) noexcept : _mutex(&_own) {
    static std::mutex of_process;
    if (is_serialized) {
        _mutex = &of_process;
    }
}

ZERO_INLINE void Family::remove(Peers const* member) noexcept {
    for (Peers*& other : _members) {
        other = other == member ? nullptr : other;
    }
}

} // namespace ZERO_NAMESPACE::mpi::detail
