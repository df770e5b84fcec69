#pragma once

#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/drain.hpp"
#include "state_table.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Moves the arrays of a training state from the memory of one layout to the memory of
/// another. Every rank needs memory for one whole parameter at a time. `EngineRebuild` uses it.
template <class Communicator>
class StateMover {
public:
    using Backend = typename Communicator::Backend;
    using Queue = typename Backend::Queue;

    /// @param old the layout of the source
    /// @param is_sharded whether each rank holds only its extents
    /// @param origins by index in the other layout, ascending: the index of each parameter in
    /// `old`; larger than all of these for one that is new. Empty: both have the same parameters
    StateMover(FlatLayout const& old, bool is_sharded, Communicator& communicator, Queue queue,
               MemoryResource& memory, std::span<std::size_t const> origins = {}) noexcept
        : _old(&old), _is_sharded(is_sharded), _communicator(&communicator), _queue(queue),
          _memory(&memory), _origins(origins) {}

    /// @brief Moves one array, parameter by parameter, as far as both have it. Collective if it is
    /// sharded; waits.
    /// @param copy copies `(to, from, bytes)` on the host at once, for slices whose addresses are
    /// not memory; empty: the backend copies
    [[gnu::cold]] void move(HeldArray const& from, HeldArray const& to,
                            StateTable::Copy copy = {}) const {
        auto const copy_bytes = [&](void* target, void const* source, std::size_t bytes) {
            if (copy) {
                copy(target, source, bytes);
            } else {
                Backend::copy_bytes(_queue, target, source, bytes);
            }
        };
        List<HeldSlice> const sources = from.by_parameter();
        List<HeldSlice> const targets = to.by_parameter();
        Buffer<char> whole(*_memory, from.largest(*_old), BufferKind::control);
        Drain<Backend> const drain(_queue); // commands use the buffer, even after a throw
        std::size_t source = 0;
        std::size_t target = 0;
        std::size_t next = 0;
        for (std::size_t parameter = 0; parameter < _old->parameters().size(); ++parameter) {
            while (next < _origins.size() && _origins[next] < parameter) {
                ++next;
            }
            bool const is_kept =
                _origins.empty() || (next < _origins.size() && _origins[next] == parameter);
            if (!is_kept || !from.has(*_old, parameter)) {
                continue;
            }
            while (source < sources.size() && sources[source].parameter < parameter) {
                ++source; // of a parameter that was removed
            }
            for (; source < sources.size() && sources[source].parameter == parameter; ++source) {
                HeldSlice const& slice = sources[source];
                copy_bytes(whole.data() + from.bytes(slice.begin), slice.data,
                           from.bytes(slice.elements));
            }
            if (_is_sharded) {
                auto const cuts = from.byte_cuts(*_old, parameter);
                char* const own = whole.data() + cuts[shard_rank_of(*_communicator)];
                shard_of(*_communicator)
                    .all_gather(static_cast<char const*>(own), whole.data(), cuts, _queue,
                                engine_tag(*_old, "state of parameter", parameter));
            }
            if (copy) {
                wait_for_collectives(*_communicator, _queue);
            }
            std::size_t const index = _origins.empty() ? parameter : next;
            while (target < targets.size() && targets[target].parameter < index) {
                ++target; // the source has no such array of it
            }
            for (; target < targets.size() && targets[target].parameter == index; ++target) {
                HeldSlice const& slice = targets[target];
                copy_bytes(slice.data, whole.data() + from.bytes(slice.begin),
                           from.bytes(slice.elements));
            }
            // each time, because the capacity of a queue is limited
            wait_for_collectives(*_communicator, _queue);
        }
    }

private:
    FlatLayout const* _old;
    bool _is_sharded;
    Communicator* _communicator;
    Queue _queue;
    MemoryResource* _memory;
    std::span<std::size_t const> _origins;
};

} // namespace ZERO_NAMESPACE::detail
