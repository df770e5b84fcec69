#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/layout_totals.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/range.hpp"
#include "../../layout/wire_chunk.hpp"
#include "engine_context.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether gradients are converted into a buffer of their own before they are sent.
template <class Types>
constexpr bool has_wire(ReductionSchedule schedule) noexcept {
    using C = typename Types::Communication;
    return !std::is_same_v<typename Types::Gradient, C>
           || (schedule == ReductionSchedule::boundary
               && !std::is_same_v<typename Types::Accumulation, C>);
}

/// @brief Owns the buffer in which gradients are converted to the communication type, and sends
/// buckets through it. A member of GradientSumStore.
///
/// A bucket that is larger than the buffer is sent in chunks, so that no buffer is as large as the
/// largest tensor. Sums are formed per element, so chunks change no bit.
template <class Config, class Types>
class GradientWire {
public:
    using C = typename Types::Communication;
    using Backend = typename Config::Backend;

    [[gnu::cold]] explicit GradientWire(TypeContext<Config> const& context)
        : _capacity(context.options->reduction.wire_bytes / sizeof(C)),
          _buffer(*context.memory,
                  has_wire<Types>(context.schedule)
                      ? context.totals(context.type, sizeof(C)).wire_elements
                      : 0,
                  BufferKind::wire),
          _cuts(context.layout->world() + 1, 0) {}

    /// @brief Converts a bucket chunk by chunk and calls `send(wire, cuts, first)` for each chunk.
    /// `cuts` are its W + 1 cuts, valid during the call. `first(r)` is the offset in the bucket of
    /// the element at `wire + cuts[r]`.
    /// @param factor multiplies the values before the conversion
    template <class From, class Send>
    void for_chunks(typename Backend::Queue queue, std::span<std::size_t const> cuts,
                    From const* source, float factor, Send const& send) {
        std::size_t const stride = wire_stride(cuts, _capacity);
        if (cuts.back() <= _capacity) {
            Backend::convert(queue, _buffer.data(), source, cuts.back(), factor);
            send(_buffer.data(), cuts, [&](std::size_t rank) { return cuts[rank]; });
            return;
        }
        for (std::size_t chunk = 0; chunk < wire_chunks(cuts, _capacity); ++chunk) {
            auto const part = [&](std::size_t rank) {
                return wire_part(cuts[rank], cuts[rank + 1], stride, chunk);
            };
            auto const first = [&](std::size_t rank) { return cuts[rank] + part(rank).begin; };
            for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
                std::size_t const elements = part(rank).size();
                if (elements != 0) {
                    Backend::convert(queue, _buffer.data() + _cuts[rank], source + first(rank),
                                     elements, factor);
                }
                _cuts[rank + 1] = _cuts[rank] + elements;
            }
            send(_buffer.data(), std::span<std::size_t const>(_cuts.data(), _cuts.size()), first);
        }
    }

private:
    std::size_t _capacity; ///< in elements
    Buffer<C> _buffer;
    std::vector<std::size_t> _cuts; ///< cuts of the current chunk
};

} // namespace ZERO_NAMESPACE::detail
