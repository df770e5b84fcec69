#pragma once

#include "../../backend/fence.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief How a bucket passes through two levels of G inner and R outer ranks: the cuts of each
/// level, and the memory in which sums lie between them. Used by `Hierarchical`, whose rank is
/// inner * R + outer.
template <class Backend>
class TwoLevels {
public:
    using Queue = typename Backend::Queue;

    /// @brief A rank of a level.
    struct Place {
        std::size_t rank;
        std::size_t ranks;
    };

    /// @param scratch_bytes of the memory between the levels; not allocated if one has a single
    /// rank
    TwoLevels(Place inner, Place outer, MemoryResource& memory, std::size_t scratch_bytes)
        : _inner(inner), _outer(outer), _inner_cuts(inner.ranks + 1), _outer_cuts(outer.ranks + 1),
          _scratch(memory, inner.ranks != 1 && outer.ranks != 1 ? scratch_bytes : 0,
                   BufferKind::communicator) {}
    TwoLevels(TwoLevels&&) = delete;
    TwoLevels& operator=(TwoLevels&&) = delete;

    /// @brief Waits until the commands that use the scratch memory have run.
    ~TwoLevels() {
        try {
            if (_scratch) {
                Backend::synchronise(_used);
            }
        } catch (...) { // a device that has failed runs no further commands
        }
    }

    [[nodiscard]] std::size_t scratch_bytes() const noexcept { return _scratch.size_bytes(); }

    /// @brief The cuts of the inner level: of a range of `scatter`, or of `gather`.
    [[nodiscard]] std::span<std::size_t const> inner_cuts() const noexcept {
        return as_span(_inner_cuts);
    }

    /// @brief The cuts of the outer level, from the part of this inner rank on.
    [[nodiscard]] std::span<std::size_t const> outer_cuts() const noexcept {
        return as_span(_outer_cuts);
    }

    /// @brief Forgets the last use of the scratch memory.
    void forget_events() noexcept { _used = {}; }

    /// @brief Calls `first_level(part, begin)`, which sums the parts of the inner ranks in
    /// `inner_cuts()`, from element `begin` of the bucket on, into the scratch memory, and
    /// `last(part, begin)` for each range of the bucket whose parts fit: `part` holds the sums of
    /// the extents in `outer_cuts()`, the one of this rank from its element `begin` on.
    template <class T, class First, class Last>
    void scatter(std::span<std::size_t const> cuts, Queue queue, First const& first_level,
                 Last const& last) {
        std::size_t const outer = _outer.ranks;
        std::size_t const capacity = _scratch.size_bytes() / sizeof(T);
        std::size_t longest = 0;
        for (std::size_t inner = 0; inner < _inner.ranks; ++inner) {
            longest = larger(longest, cuts[(inner + 1) * outer] - cuts[inner * outer]);
        }
        std::size_t const stride = longest <= capacity ? cuts.back() : capacity;
        std::size_t const first = _inner.rank * outer;
        std::size_t const own_begin = cuts[first + _outer.rank];
        std::size_t const own = cuts[first + _outer.rank + 1] - own_begin;
        auto* const part = reinterpret_cast<T*>(_scratch.data());
        Backend::wait(queue, _used, Fence::peers_done); // the caller may have changed the queue
        for (std::size_t begin = 0, end = 0; begin == 0 || begin < cuts.back(); begin = end) {
            end = begin + smaller(stride, cuts.back() - begin);
            auto const inside = [&](std::size_t cut) { return larger(begin, smaller(cut, end)); };
            for (std::size_t inner = 0; inner <= _inner.ranks; ++inner) {
                _inner_cuts[inner] = inside(cuts[inner * outer]) - begin;
            }
            for (std::size_t rank = 0; rank <= outer; ++rank) {
                _outer_cuts[rank] = inside(cuts[first + rank]) - inside(cuts[first]);
            }
            try {
                first_level(part, begin);
                last(part, smaller(inside(own_begin) - own_begin, own));
            } catch (...) {
                _used = Backend::record(queue);
                throw;
            }
            if (end == cuts.back()) {
                break;
            }
        }
        _used = Backend::record(queue);
    }

    /// @brief Sets the cuts of both levels to those of the whole bucket. @return the first element
    /// of the part of this inner rank
    std::size_t gather(std::span<std::size_t const> cuts) noexcept {
        std::size_t const outer = _outer.ranks;
        std::size_t const first = _inner.rank * outer;
        for (std::size_t inner = 0; inner <= _inner.ranks; ++inner) {
            _inner_cuts[inner] = cuts[inner * outer];
        }
        for (std::size_t rank = 0; rank <= outer; ++rank) {
            _outer_cuts[rank] = cuts[first + rank] - cuts[first];
        }
        return cuts[first];
    }

private:
    Place _inner;
    Place _outer;
    std::vector<std::size_t> _inner_cuts; ///< of the current collective
    std::vector<std::size_t> _outer_cuts; ///< of the current collective
    Buffer<std::byte> _scratch;
    typename Backend::Event _used{}; ///< the last use of the scratch memory
};

} // namespace ZERO_NAMESPACE::detail
