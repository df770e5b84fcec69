#pragma once

#include "../../../comm/collective_tag.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Without parts of ranks nothing is copied.
struct NoSecondaryCopies {
    template <class Context>
    explicit NoSecondaryCopies(Context const& /*context*/) noexcept {}
};

/// @brief Owns this rank's parts of gathered buckets, and gathers a bucket from the parts of the k
/// ranks of a `SecondaryCommunicator`. A member of ParameterStore.
///
/// A copy is valid from `keep` to `drop_all`, on all ranks alike: it is kept when a bucket is
/// gathered from its owners and dropped where buckets that were gathered in advance are, before
/// parameters change. All commands are enqueued on the queue of gathers, so a copy is written
/// before it is sent, and sent before it is written again. Persistent buckets stay gathered, and
/// have no copy.
template <class Config, class Types>
class SecondaryCopyStore {
public:
    using T = typename Types::Parameter;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;

    [[gnu::cold]] explicit SecondaryCopyStore(TypeContext<Config> const& context)
        : _layout(context.layout), _part(&context.communicator->secondary()), _cuts(ranks() + 1, 0),
          _begins(_layout->buckets(), 0), _is_kept(_layout->buckets(), 0) {
        std::size_t elements = 0;
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            _begins[bucket] = elements;
            if (context.row.shards_parameters() && _layout->bucket(bucket).type == context.type) {
                elements += range(bucket, rank()).size();
            }
        }
        _copies = Buffer<T>(*context.memory, elements, BufferKind::secondary_copies);
    }

    /// @brief Returns the row of the memory plan.
    [[nodiscard]] static MemoryRow row(EngineContext<Config> const& context, std::size_t type) {
        auto const& part = context.communicator->secondary();
        return plan_secondary_copies(*context.layout, static_cast<std::size_t>(part.rank()),
                                     static_cast<std::size_t>(part.size()), sizeof(T), type);
    }

    /// @brief Returns whether a bucket is gathered from the copies. The same on every rank.
    [[nodiscard]] bool has(std::size_t bucket) const noexcept { return _is_kept[bucket] != 0; }

    /// @brief Keeps this rank's part of a bucket that is gathered from its owners.
    void keep(std::size_t bucket, T const* lease, Queue queue) {
        if (_is_kept[bucket] != 0 || _layout->bucket(bucket).is_persistent) {
            return;
        }
        Range const own = range(bucket, rank());
        _is_kept[bucket] = 1;
        if (!own.is_empty()) {
            Backend::copy_bytes(queue, _copies.data() + _begins[bucket], lease + own.begin,
                                own.size() * sizeof(T));
        }
    }

    /// @brief Gathers a bucket that `has` a copy. Collective among the k ranks.
    void gather(std::size_t bucket, T* lease, Queue queue, CollectiveTag const& tag) {
        for (std::size_t part = 0; part < ranks(); ++part) {
            _cuts[part + 1] = range(bucket, part).end;
        }
        if (_cuts.back() != 0) {
            _part->all_gather(static_cast<T const*>(_copies.data()) + _begins[bucket], lease,
                              as_span(_cuts), queue, tag);
        }
    }

    /// @brief Drops all copies: parameters are about to change. Call it on every rank.
    void drop_all() noexcept {
        for (char& is_kept : _is_kept) {
            is_kept = 0;
        }
    }

private:
    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(_part->size()); }
    [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(_part->rank()); }

    [[nodiscard]] Range range(std::size_t bucket, std::size_t part) const {
        return secondary_range(*_layout, bucket, part, ranks());
    }

    FlatLayout const* _layout;
    std::remove_reference_t<decltype(std::declval<typename Config::Communicator&>().secondary())>*
        _part;
    Buffer<T> _copies;
    std::vector<std::size_t> _cuts;   ///< of the bucket that is gathered
    std::vector<std::size_t> _begins; ///< by bucket, in `_copies`
    std::vector<char> _is_kept;       ///< by bucket
};

/// @brief The secondary copies of an engine, or nothing.
template <class Config, class Types>
using SecondaryCopiesOf = std::conditional_t<SecondaryCommunicator<typename Config::Communicator>,
                                             SecondaryCopyStore<Config, Types>, NoSecondaryCopies>;

} // namespace ZERO_NAMESPACE::detail
