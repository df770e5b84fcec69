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

ZERO_COLD_INLINE bool Family::keep(std::shared_ptr<void> leaving) {
    std::size_t others = 0;
    for (Peers const* const member : _members) {
        others += member != nullptr ? 1 : 0;
    }
    if (others <= 1 + _kept.size()) {
        return false;
    }
    _kept.push_back(std::move(leaving));
    return true;
}

} // namespace ZERO_NAMESPACE::mpi::detail
