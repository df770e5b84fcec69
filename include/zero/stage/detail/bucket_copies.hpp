#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Tensors outside the buckets, and where their parts stand in each bucket: what flatten and
/// unflatten walk, any number of parts at once.
template <class T, class Backend>
class BucketCopies {
    using Table = typename Backend::template SliceTable<CopySlice<T>>;

public:
    BucketCopies() = default;

    /// @param tensors by parameter; null: it is not copied
    /// @param held what is copied of a bucket: `held(bucket)` is a range of it
    template <class Held>
    BucketCopies(FlatLayout const& layout, typename Backend::Queue queue, MemoryResource& memory,
                 List<T*> const& tensors, Held const& held) {
        List<CopySlice<T>> slices;
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            _first.push_back(slices.size());
            layout.for_slices(bucket, held(bucket), [&](Piece const& piece) {
                if (tensors[piece.parameter] != nullptr
                    && piece.elements != 0) { // an empty tensor may have no address
                    slices.push_back({tensors[piece.parameter] + piece.parameter_begin,
                                      piece.bucket_begin, piece.elements});
                }
            });
        }
        _first.push_back(slices.size());
        _table = {queue, memory, std::move(slices)};
    }

    /// @brief Everything that is copied of a bucket.
    [[nodiscard]] auto of(std::size_t bucket) const noexcept {
        return of(bucket, 0, _first[bucket + 1] - _first[bucket]);
    }

    /// @brief `count` parts that follow one another, from number `first` of the bucket on.
    [[nodiscard]] auto of(std::size_t bucket, std::size_t first, std::size_t count) const noexcept {
        return _table.range(_first[bucket] + first, count);
    }

    /// @brief Bytes of the backend's memory.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return _table.size_bytes(); }

private:
    Table _table;
    std::vector<std::size_t> _first; ///< part of each bucket, and one past the last
};

} // namespace ZERO_NAMESPACE::detail
