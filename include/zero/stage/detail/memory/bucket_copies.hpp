#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The table of copies between tensors outside the buckets and the buckets. Flatten and
/// unflatten process any number of its slices in one command.
template <class T, class Backend>
class BucketCopies {
    using Table = typename Backend::template SliceTable<CopySlice<T>>;
    using Queue = typename Backend::Queue;
    using RangeOf = FunctionRef<std::size_t, Range&>;

public:
    BucketCopies() = default;

    /// @param tensors by parameter: the address of its tensor; null if it is not copied
    /// @param held `held(bucket)` is the range of the bucket that is copied
    template <class Held>
    BucketCopies(FlatLayout const& layout, Queue queue, MemoryResource& memory,
                 List<T*> const& tensors, Held const& held)
        : BucketCopies(layout, queue, memory, tensors,
                       RangeOf([&](std::size_t bucket, Range& range) { range = held(bucket); })) {}

    /// @brief Returns the slices of all copies of a bucket.
    [[nodiscard]] auto of(std::size_t bucket) const noexcept {
        return of(bucket, 0, count(bucket));
    }

    /// @brief Returns `count` consecutive slices of a bucket, from its slice `first` on.
    [[nodiscard]] auto of(std::size_t bucket, std::size_t first, std::size_t count) const noexcept {
        return _table.range(_first[bucket] + first, count);
    }

    /// @brief Returns the number of copies of a bucket.
    [[nodiscard]] std::size_t count(std::size_t bucket) const noexcept {
        return _first[bucket + 1] - _first[bucket];
    }

    /// @brief Bytes of the table in the backend's memory.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return _table.size_bytes(); }

private:
    /// One instantiation for all callbacks.
    [[gnu::cold]] BucketCopies(FlatLayout const& layout, Queue queue, MemoryResource& memory,
                               List<T*> const& tensors, RangeOf held) {
        List<CopySlice<T>> slices;
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            _first.push_back(slices.size());
            Range range;
            held(bucket, range);
            layout.for_slices(bucket, range, [&](Piece const& piece) {
                // an empty tensor may have no address
                if (tensors[piece.parameter] != nullptr && piece.elements != 0) {
                    slices.push_back({tensors[piece.parameter] + piece.parameter_begin,
                                      piece.bucket_begin, piece.elements});
                }
            });
        }
        _first.push_back(slices.size());
        _table = {queue, memory, std::move(slices)};
    }

    Table _table;
    std::vector<std::size_t> _first; ///< by bucket: index of its first slice; then the total
};

} // namespace ZERO_NAMESPACE::detail
