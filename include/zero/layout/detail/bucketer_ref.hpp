#pragma once

#include "../../core/detail/namespace.hpp"
#include "../bucket_item.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief A type-erased `Bucketer` with its options. Layouts are made through it, so that they are
/// compiled once and not for each composition. The options must outlive it.
struct BucketerRef {
    void const* options;
    void (*validate)(void const* options);
    std::size_t capacity; ///< in bytes; no limit unless the options have `bucket_bytes`
    std::size_t (*take)(std::span<BucketItem const> items, void const* options,
                        std::size_t element_bytes);
};

template <class Bucketer>
BucketerRef bucketer_ref(typename Bucketer::Options const& options) noexcept {
    using Options = typename Bucketer::Options;
    std::size_t capacity = static_cast<std::size_t>(-1);
    if constexpr (requires { capacity = options.bucket_bytes; }) {
        capacity = options.bucket_bytes;
    }
    return {&options,
            [](void const* erased) { Bucketer::validate(*static_cast<Options const*>(erased)); },
            capacity,
            [](std::span<BucketItem const> items, void const* erased, std::size_t element_bytes) {
                return Bucketer::take(items, *static_cast<Options const*>(erased), element_bytes);
            }};
}

} // namespace ZERO_NAMESPACE::detail
