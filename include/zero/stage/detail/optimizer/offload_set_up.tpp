#pragma once

// Construction of `OffloadedStates`; included by offload_pipeline.hpp.

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "master_weight_store.hpp"
#include "offload_pipeline.hpp"
#include "optimizer_state_store.hpp"
#include "optimizer_store.hpp"

#include <algorithm>

namespace ZERO_NAMESPACE::detail {

template <class Config>
[[gnu::cold]] OffloadedStates<Config, true>::OffloadedStates(
    FlatLayout const& layout, typename Config::Communicator& communicator, StageRow const& row,
    StageOptions<Config> const& options, MemoryResource& memory)
    : _layout(&layout), _rank(static_cast<std::size_t>(communicator.rank())),
      _overwrites_parameters(!Config::Optimizer::whole_tensor // which may leave a parameter
                             && options.unused_parameters != UnusedParameters::leave) {
    auto const& chosen = options.offload;
    std::size_t const rank = _rank;
    auto const refuse_if = [rank](bool is_wrong, char const* why) {
        if (is_wrong) throw_error<InvalidArgument>({"zero: rank ", rank, why});
    };
    refuse_if(chosen.depth == 0,
              ": offload.depth is 0; it is the number of chunks in staging memory, at least 1 "
              "and usually 3: one is read, one updated, one written.");
    refuse_if(options.update_tile_elements != 0,
              ": update_tile_elements is set, but Offload updates chunk by chunk; leave it "
              "out, and set offload.chunk_bytes.");
    refuse_if(parts == 1 && chosen.resident_bytes != 0,
              ": offload.resident_bytes would be ignored, because parameters are not offloaded; "
              "leave it out, or name zero::BufferKind::parameters in Offload.");
    std::vector<ChunkArrays> arrays;
    for_types([&]<class Types>() {
        arrays.push_back(arrays_of<Types>());
        _overwrites_parameters = _overwrites_parameters && Types::master_form == MasterForm::copied;
    });
    auto const add = [&](std::size_t bucket, std::vector<Piece>& list) {
        for_updated_slices<Config>(layout, bucket, shard_rank_of(communicator), row,
                                   [&](Piece const& piece) { list.push_back(piece); });
    };
    _places = ChunkPlaces(layout, as_span(arrays),
                          {chosen.chunk_bytes, chosen.ratio, chosen.resident_bytes},
                          !Config::Optimizer::whole_tensor, add);
    std::vector<std::uint64_t> const requests = _places.requests();
    try {
        _tier = std::make_unique<Tier>(chosen, requests, text({"rank ", rank}), memory);
    } catch (TierError const& error) { // the disk of this rank alone may be full
        communicator.abort(first_line(error.what()));
        throw;
    }
    _tier->describe_by(
        [](void const* states, std::size_t request) {
            return static_cast<OffloadedStates const*>(states)->name_of_request(request);
        },
        this);
    std::vector<std::size_t> staging;
    for (std::size_t request = 0; request < requests.size(); ++request) {
        staging.push_back(_tier->staging_bytes(request));
    }
    _places.lay_out(as_span(staging), _tier->alignment(), chosen.depth);
    allocate(memory, options.poison);
    if constexpr (delays_update<Config>) {  // with room for a whole update
        constexpr std::size_t commands = 6; // of a chunk, at most
        _updates = std::make_unique<typename Backend::OwnedQueue>(
            commands * (plan().chunks().size() + layout.buckets() + 1), memory);
    }
}

template <class Config>
template <class Types>
[[gnu::cold]] ChunkArrays OffloadedStates<Config, true>::arrays_of() {
    using Masters = MasterWeightStore<Config, Types>;
    using States = OptimizerStateStore<Config>;
    ChunkArrays arrays;
    for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
        BufferKind const name = ChunkArrays::kinds[kind];
        auto const add = [&](std::size_t count, std::size_t bytes, std::size_t bytes_of_block) {
            for (std::size_t array = 0; bytes + bytes_of_block != 0 && array < count; ++array) {
                arrays.of[kind].push_back({bytes, bytes_of_block});
            }
        };
        if (!Config::Offload::offloads(name)) {
            continue;
        }
        if (name == BufferKind::parameters) {
            add(1, sizeof(typename Types::Parameter), 0);
        } else if (name == BufferKind::master_weights) {
            add(1, Masters::bytes, 0);
            add(1, 0, Masters::bytes_per_block);
        } else {
            constexpr std::size_t count = States::states;
            add(count, States::bytes / count, 0);
            add(count, 0, States::bytes_per_block / count);
        }
    }
    return arrays;
}

template <class Config>
[[gnu::cold]] void OffloadedStates<Config, true>::allocate(MemoryResource& memory, bool poison) {
    _slots.resize(_places.slots());
    _gather_slots.resize(_places.gather_slots());
    std::size_t room = _places.staging_bytes();
    _staging = Buffer<std::byte>(memory, room, BufferKind::staging);
    std::fill_n(_staging.data(), room, std::byte(poison ? 0xff : 0));
    for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
        auto& buffer = _resident[kind];
        buffer =
            Buffer<std::byte>(memory, _places.resident(kind).bytes(), ChunkArrays::kinds[kind]);
        std::fill_n(buffer.data(), buffer.size(), std::byte(poison ? 0xff : 0));
    }
    if (room != 0) {
        void* begin = _staging.data();
        std::size_t const needed = _places.gather_slot_begin(_gather_slots.size());
        _staging_begin =
            static_cast<std::byte*>(std::align(_places.alignment(), needed, begin, room));
    }
}

template <class Config>
[[gnu::cold]] std::string
OffloadedStates<Config, true>::name_of_request(std::size_t request) const {
    std::size_t const numbers = _places.numbers();
    bool const is_parameters = request >= numbers;
    std::string kinds = is_parameters ? name_of(BufferKind::parameters) : "";
    for (BufferKind const kind : Config::Offload::kinds) {
        if (!is_parameters && kind != BufferKind::parameters) {
            kinds += text({kinds.empty() ? "" : " and ", name_of(kind)});
        }
    }
    auto const slices =
        plan().slices(plan().chunks()[_places.chunk(request % larger<std::size_t>(numbers, 1))]);
    Piece const& first = slices.front();
    std::string const more =
        slices.size() == 1 ? "" : text({", and ", slices.size() - 1, " more slices"});
    return text({kinds, " of '", _layout->parameter(first.parameter).name, "', elements ",
                 first.parameter_begin, " to ", first.parameter_begin + first.elements - 1, more});
}

} // namespace ZERO_NAMESPACE::detail
