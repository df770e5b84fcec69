#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Parameters start and shards are cut at multiples of this many elements.
///
/// 128 bytes at 16 bit: vector loads and 16-byte transport paths survive at any world size. It is
/// also the leaf of the exact norm, so that no leaf is split between ranks.
inline constexpr std::size_t granularity = 64;

} // namespace ZERO_NAMESPACE
