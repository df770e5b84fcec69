#pragma once

#include "namespace.hpp"

#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns a number of bytes for readers: "512 bytes", "1.05 GB" (10^9 bytes). Rounded to
/// two decimals from 10 kB on.
[[gnu::cold]] std::string bytes_text(std::size_t bytes);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "bytes_text.ipp"
#endif
