#pragma once

#include "../../comm/communicator.hpp"
#include "../../comm/detail/wait_for_collectives.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/detail/count_blocks.hpp"
#include "../../layout/detail/order_by.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../layout/piece.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "../owned_slice.hpp"
#include "drain.hpp"
#include "engine_context.hpp"
#include "optimizer_store.hpp"
#include "parameter_store.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// How a training state gets from one layout to another: every array of it goes through parameter
/// space, one parameter after the other.
namespace ZERO_NAMESPACE::detail {

/// @brief A part of a parameter that this rank holds in one array.
struct HeldSlice {
    std::size_t parameter = 0;
    std::size_t begin = 0; ///< first element, counted inside the parameter
    std::size_t elements = 0;
    void* data = nullptr;
};

/// @brief One array of a training state (parameters, master weights, a moment, ...) as far as this
/// rank holds it.
///
/// An item belongs to one element, or to some that begin at a multiple of their number: a scale to
/// 64, a byte of bits to 8.
struct HeldArray {
    std::size_t type = 0; ///< of the parameters
    bool has_frozen = false;
    std::size_t item_bytes = 0;
    std::size_t item_elements = 1;
    List<HeldSlice> slices{};

    /// @brief Bytes of the first elements of a parameter; ranks' parts end at multiples of 64
    /// elements.
    [[nodiscard]] std::size_t bytes(std::size_t elements) const noexcept {
        return (elements + item_elements - 1) / item_elements * item_bytes;
    }
};

/// @brief The slices in ascending order of their parameters.
inline List<HeldSlice> by_parameter(List<HeldSlice> const& slices) {
    std::vector<std::uint64_t> parameters;
    for (HeldSlice const& slice : slices) {
        parameters.push_back(slice.parameter);
    }
    List<HeldSlice> sorted;
    for (std::size_t const index : order_by(parameters)) {
        sorted.push_back(slices[index]);
    }
    return sorted;
}

/// @brief Where each rank's part of a parameter that lies in one bucket ends, in bytes of an array:
/// W + 1 offsets.
inline std::vector<std::size_t> byte_cuts(FlatLayout const& layout, std::size_t parameter,
                                          HeldArray const& array) {
    std::vector<std::size_t> cuts;
    std::size_t const bucket = layout.parameter_buckets(parameter).front();
    for (Piece const& piece : layout.pieces(bucket)) {
        if (piece.parameter == parameter) {
            for (std::size_t const cut : layout.cuts(bucket)) {
                std::size_t const end = larger(cut, piece.bucket_begin) - piece.bucket_begin;
                cuts.push_back(array.bytes(smaller(end, piece.elements)));
            }
        }
    }
    return cuts;
}

/// @brief The parameters of one type that this rank holds. @param layout the one that `memory` was
/// made for
template <class Config, class Types>
HeldArray held_parameters(ParameterStore<Config, Types> const& memory, FlatLayout const& layout,
                          EngineContext<Config> const& context, std::size_t type) {
    HeldArray array{type, true, sizeof(typename Types::Parameter)};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (layout.bucket(bucket).type == type) {
            Range const held = context.row.shards_parameters()
                                   ? layout.extent(bucket, context.rank())
                                   : Range{0, layout.elements(bucket)};
            layout.for_slices(bucket, held, [&](Piece const& piece) {
                array.slices.push_back({piece.parameter, piece.parameter_begin, piece.elements,
                                        memory.slice(bucket, piece)});
            });
        }
    }
    return array;
}

/// @brief Calls `visit(data, item_bytes, item_elements)` for each array that a slice has beside the
/// parameters.
template <class Config, class Types, class Visitor>
void for_arrays(OwnedSlice<Config, Types> const& slice, Visitor&& visit) {
    if constexpr (Types::has_master) {
        visit(slice.master.data(), sizeof(slice.master[0]), 1);
    }
    if constexpr (Types::master_form == MasterForm::split) {
        visit(slice.remainder.data(), sizeof(slice.remainder[0]), 1);
        visit(slice.rounded_up.data(), sizeof(slice.rounded_up[0]), 8);
    }
    for (auto const& state : slice.states) {
        visit(state.data(), sizeof(state[0]), 1);
    }
    if constexpr (Config::OptimizerState::is_block_scaled) {
        for (auto const& scale : slice.scales) {
            visit(scale.data(), sizeof(scale[0]), block_elements);
        }
    }
}

/// @brief Adds what this rank holds for its updates of parameters of one type; the same arrays on
/// every rank.
template <class Config, class Types>
void add_held_states(List<HeldArray>& arrays, OptimizerStore<Config, Types> const& memory,
                     std::size_t type) {
    std::size_t const first = arrays.size();
    for_arrays(OwnedSlice<Config, Types>(),
               [&](void*, std::size_t item_bytes, std::size_t item_elements) {
                   arrays.push_back({type, false, item_bytes, item_elements});
               });
    for (std::size_t index = 0; index < memory.slices(); ++index) {
        auto const owned = memory.owned_slice(index);
        std::size_t next = first;
        for_arrays(owned, [&](void* data, std::size_t, std::size_t) {
            HeldSlice const slice{
                owned.parameter, owned.begin, owned.values.size(),
                data}; // with a name: nvcc 13.0 writes the braces of an argument wrongly here
            arrays[next++].slices.push_back(slice);
        });
    }
}

/// @brief Carries the arrays of a training state from the memory of one layout to that of another.
/// One parameter at a time is whole on every rank.
template <class Communicator>
class StateMover {
public:
    using Backend = typename Communicator::Backend;
    using Queue = typename Backend::Queue;

    /// @param old the layout of what is moved
    /// @param is_sharded each rank holds its part; otherwise all of it
    StateMover(FlatLayout const& old, bool is_sharded, Communicator& communicator, Queue queue,
               MemoryResource& memory) noexcept
        : _old(&old), _is_sharded(is_sharded), _communicator(&communicator), _queue(queue),
          _memory(&memory) {}

    /// @brief Moves one array. Collective if it is sharded; waits.
    void move(HeldArray const& from, HeldArray const& to) const {
        List<HeldSlice> const sources = by_parameter(from.slices);
        List<HeldSlice> const targets = by_parameter(to.slices);
        Buffer<char> whole(*_memory, largest(from), BufferKind::control);
        Drain<Backend> const drain(
            _queue); // commands that were enqueued use it, also when something is thrown
        std::size_t source = 0;
        std::size_t target = 0;
        for (std::size_t parameter = 0; parameter < _old->parameters().size(); ++parameter) {
            if (!is_in(from, parameter)) {
                continue;
            }
            for (; source < sources.size() && sources[source].parameter == parameter; ++source) {
                HeldSlice const& slice = sources[source];
                Backend::copy_bytes(_queue, whole.data() + from.bytes(slice.begin), slice.data,
                                    from.bytes(slice.elements));
            }
            if (_is_sharded) {
                auto const cuts = byte_cuts(*_old, parameter, from);
                char* const own =
                    whole.data() + cuts[static_cast<std::size_t>(_communicator->rank())];
                _communicator->all_gather(static_cast<char const*>(own), whole.data(), cuts, _queue,
                                          CollectiveTag{"state of parameter", parameter});
            }
            for (; target < targets.size() && targets[target].parameter == parameter; ++target) {
                HeldSlice const& slice = targets[target];
                Backend::copy_bytes(_queue, slice.data, whole.data() + from.bytes(slice.begin),
                                    from.bytes(slice.elements));
            }
            wait_for_collectives(*_communicator,
                                 _queue); // each time: a queue takes a limited number of commands
        }
    }

private:
    [[nodiscard]] bool is_in(HeldArray const& array, std::size_t parameter) const {
        ParameterSpec const& spec = _old->parameter(parameter);
        return spec.type == array.type && spec.elements != 0
               && (spec.trainable || array.has_frozen);
    }

    [[nodiscard]] std::size_t largest(HeldArray const& array) const {
        std::size_t most = 0;
        for (std::size_t parameter = 0; parameter < _old->parameters().size(); ++parameter) {
            most = larger(most, is_in(array, parameter)
                                    ? array.bytes(_old->parameter(parameter).elements)
                                    : 0);
        }
        return most;
    }

    FlatLayout const* _old;
    bool _is_sharded;
    Communicator* _communicator;
    Queue _queue;
    MemoryResource* _memory;
};

} // namespace ZERO_NAMESPACE::detail
