#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The operation of `all_reduce_integers`.
enum class IntegerReduction : std::uint8_t { sum, min };

} // namespace ZERO_NAMESPACE
