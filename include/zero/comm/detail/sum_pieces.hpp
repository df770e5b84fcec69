#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../host/host_backend.hpp"
#include "../../host/inline_queue.hpp"

#include <cstddef>
#include <new>

namespace ZERO_NAMESPACE::detail {

/// @brief Views untyped addresses as addresses of `T`, in place: the table belongs to the calling
/// collective.
template <class T>
T const* const* typed_pieces(void const* const* pieces, int world) {
    static_assert(sizeof(T const*) == sizeof(void const*));
    auto* const memory = const_cast<void const**>(pieces);
    T const** table = nullptr;
    for (int rank = world; rank-- > 0;) {
        auto const* const address = static_cast<T const*>(memory[rank]);
        table = ::new (static_cast<void*>(memory + rank)) T const*(address);
    }
    return table;
}

/// @brief `SumPieces` by the kernel of the loopback: the sum of `T`, rounded to `T`.
template <StorageType T>
void sum_pieces(void* out, void const* const* pieces, int world, std::size_t elements) {
    host::InlineQueue queue;
    HostBackend::sum_ranks(&queue, static_cast<T*>(out), typed_pieces<T>(pieces, world), world,
                           elements);
}

/// @brief `SumPieces` by the kernel of the loopback: the same sum replaces elements of `A`, or is
/// added to them.
template <StorageType T, StorageType A, bool is_added>
void accumulate_pieces(void* out, void const* const* pieces, int world, std::size_t elements) {
    host::InlineQueue queue;
    HostBackend::sum_ranks(&queue, static_cast<A*>(out), typed_pieces<T>(pieces, world), world,
                           elements, is_added);
}

} // namespace ZERO_NAMESPACE::detail
