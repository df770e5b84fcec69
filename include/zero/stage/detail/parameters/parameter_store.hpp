#pragma once

#include "../../../backend/fence.hpp"
#include "../../../comm/communicator.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/cuts.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/lease_plan.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../parameter.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/set_up_backlog.hpp"
#include "../memory/bucket_copies.hpp"
#include "../memory/bucket_pool.hpp"
#include "../memory/offloaded_states.hpp"
#include "../memory/placed_buffer.hpp"
#include "secondary_copy_store.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether sharded parameters are read in the shard instead of in copies: on a single rank,
/// which owns all of them. Poison fills released copies with NaN, so it needs them. A shard that is
/// offloaded cannot be read, or only through the link to the host. With a codec, copies hold other
/// values than the shard, or it holds none.
template <class Config>
[[nodiscard]] bool reads_in_place(EngineContext<Config> const& context) noexcept {
    return context.row.shards_parameters() && context.layout->world() == 1
           && !context.options->poison && !Config::Offload::offloads(BufferKind::parameters)
           && !lies_on_host<Config>(BufferKind::parameters)
           && !codes_weights<Config> && !codes_frozen<Config>;
}

template <class Config, class Types, class C, bool is_frozen>
class EncodedWeights; // stage/wire.hpp includes it

/// @brief Weights travel as they are.
template <bool is_frozen>
struct PlainWeights {
    [[nodiscard]] static constexpr std::size_t table_bytes() noexcept { return 0; }
};

/// @brief The codes of trainable or frozen parameters of an engine, or nothing.
template <class Config, class Types, bool is_frozen>
struct WeightCodes {
    using type = PlainWeights<is_frozen>;
};
template <class Config, class Types>
    requires has_weight_codec<Types>
struct WeightCodes<Config, Types, false> {
    using type = EncodedWeights<Config, Types, typename Types::WeightCodec, false>;
};
template <class Config, class Types>
    requires has_frozen_codec<Types>
struct WeightCodes<Config, Types, true> {
    using type = EncodedWeights<Config, Types, typename Types::FrozenCodec, true>;
};
template <class Config, class Types, bool is_frozen>
using WeightCodesOf = typename WeightCodes<Config, Types, is_frozen>::type;

/// @brief Owns the parameters of one type in every storage and placement, or has them in a tier,
/// and calls the collectives that move them. The ParameterScheduler decides when.
template <class Config, class Types>
class ParameterStore {
public:
    using T = typename Types::Parameter;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Communicator = typename Config::Communicator;

    [[gnu::cold]] explicit ParameterStore(TypeContext<Config> const& context)
        : ParameterStore(context, context.parameter_leases(context.type)) {}

    /// @brief Reserves memory for a gathered bucket. @return false if there is no room
    [[nodiscard]] bool claim(std::size_t bucket, LeaseChoice choice) {
        return _pool.claim(bucket, choice);
    }
    [[nodiscard]] bool is_claimed(std::size_t bucket) const noexcept {
        return _pool.is_claimed(bucket);
    }
    void unclaim(std::size_t bucket) { _pool.unclaim(bucket); }
    void forget_events() noexcept { _pool.forget_events(); }
    void set_gather_route(GatherRoute<Config> const& route) noexcept { _route = route; }
    [[nodiscard]] bool is_open(std::size_t bucket) const noexcept { return _pool.is_open(bucket); }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _pieces.size_bytes() + _owned.size_bytes() + _codes.table_bytes()
               + _frozen.table_bytes();
    }

    /// @brief The memory of a slice that this rank holds: inside its extent if parameters are
    /// sharded, any slice otherwise. If they are offloaded, a slice of a chunk in staging memory.
    [[nodiscard]] T* slice(std::size_t bucket, Piece const& slice) const noexcept {
        return _is_sharded ? _placed.at(bucket, slice.bucket_begin)
                           : _full[slice.parameter] + slice.parameter_begin;
    }

    /// @brief The memory of a whole parameter: of a gathered unit if parameters are sharded, of any
    /// unit otherwise.
    [[nodiscard]] T const* whole(std::size_t parameter) const noexcept {
        if (!_is_sharded) {
            return _full[parameter];
        }
        PiecePosition const at = _layout->parameter_pieces(parameter).front();
        std::size_t const begin = _layout->piece(at).bucket_begin;
        return _is_in_place ? _placed.at(at.bucket, begin) : _pool.at(at.bucket) + begin;
    }

    /// @brief Calls `visit(Piece, address)` with each slice that this rank holds of a bucket and
    /// the address that stands for it between two steps: of codes, if it lies in codes.
    /// @param layout the layout for which this store was made
    template <class Visit>
    [[gnu::cold]] void for_held(FlatLayout const& layout, std::size_t bucket,
                                Visit const& visit) const {
        if constexpr (is_offloaded) {
            _offload.states->for_held_parameters(bucket, visit);
        } else {
            if constexpr (has_frozen_codes) {
                if (!layout.bucket(bucket).trainable) {
                    _frozen.for_kept(layout, bucket, visit);
                    return;
                }
            }
            Range const held =
                _is_sharded ? layout.extent(bucket, _rank) : Range{0, layout.elements(bucket)};
            layout.for_slices(bucket, held,
                              [&](Piece const& piece) { visit(piece, slice(bucket, piece)); });
        }
    }

    /// @brief Writes the registered values of this rank's extent of a bucket that every rank may
    /// compute. Calls the caller's initialisers.
    [[gnu::cold]] void initialise_own(std::size_t bucket,
                                      std::span<AnyParameter const> parameters) {
        T* const lease = lies_in_codes(bucket) ? open(bucket) : nullptr;
        if (lease != nullptr) { // the host writes to it
            Backend::fill(_queue, lease, _layout->elements(bucket), T{});
            Backend::synchronise(Backend::record(_queue));
        }
        auto const set = [&](Piece const& own, T* values) {
            if (parameters[own.parameter].initialise) {
                initialise(parameters[own.parameter], own.parameter_begin, own.elements, values);
            } else if constexpr (is_offloaded) { // written to the tier when this returns
                for (std::size_t i = 0; i < own.elements; ++i) {
                    values[i] = T{};
                }
            } else if (_poison && lease == nullptr) {
                Backend::fill(_queue, values, own.elements, T{});
                _backlog.count();
            }
        };
        if constexpr (is_offloaded) {
            _offload.states->template fill_parameters<T>(bucket, set);
        } else {
            _layout->for_slices(bucket, _layout->extent(bucket, _rank), [&](Piece const& own) {
                set(own, lease != nullptr ? lease + own.bucket_begin : slice(bucket, own));
            });
        }
        if (lease != nullptr) {
            keep_codes(bucket, lease);
            _pool.close(bucket, Backend::record(_queue));
        }
    }

    /// @brief Sends the registered values of a bucket from rank 0 to all ranks: into the replicas,
    /// or to the owners of sharded parameters through a lease. Collective.
    [[gnu::cold]] void broadcast_initial(std::size_t bucket,
                                         std::span<AnyParameter const> parameters) {
        T* const values = _is_sharded ? open(bucket) : _placed.at(bucket, 0);
        if (_is_sharded) {
            Backend::fill(_queue, values, _layout->elements(bucket), unset());
        }
        for (Piece const& piece : _layout->pieces(bucket)) {
            write_initial(parameters[piece.parameter], values + piece.bucket_begin);
        }
        broadcast(
            values, _layout->elements(bucket),
            bucket_tag(CollectivePurpose::publish, "initial values of bucket", *_layout, bucket));
        if (!_is_sharded) {
            return;
        }
        if constexpr (is_offloaded) {
            Backend::synchronise(Backend::record(_queue));
            _offload.states->template fill_parameters<T>(bucket, [&](Piece const& own, T* to) {
                for (std::size_t i = 0; i < own.elements; ++i) {
                    to[i] = values[own.bucket_begin + i];
                }
            });
        } else if (lies_in_codes(bucket)) {
            keep_codes(bucket, values);
        } else if (Range const own = _layout->extent(bucket, _rank); !own.is_empty()) {
            // contiguous in both places
            Backend::copy_bytes(_queue, _placed.at(bucket, own.begin), values + own.begin,
                                own.size() * sizeof(T));
        }
        _pool.close(bucket, Backend::record(_queue));
    }

    /// @brief Sends all replicated parameters from rank 0 to all: owned ones by bucket, scattered
    /// ones by bucket where there are leases for copies, others by parameter, or by run of adjacent
    /// parameters of an adopted block. Collective.
    [[gnu::cold]] void broadcast_full() {
        if (_storage == Storage::owned) {
            for_buckets(*_layout, {0, _layout->buckets()}, _type, [&](std::size_t bucket) {
                broadcast(
                    _placed.at(bucket, 0), _layout->elements(bucket),
                    bucket_tag(CollectivePurpose::publish, "values of bucket", *_layout, bucket));
            });
            return;
        }
        for_buckets(*_layout, {0, _layout->buckets()}, _type, [&](std::size_t bucket) {
            if (is_sent_in_lease(_layout->bucket(bucket).trainable)) {
                broadcast_copies(bucket);
            }
        });
        for (std::size_t first = 0, next = 0; first < _full.size(); first = next) {
            std::size_t elements = _layout->parameter(first).elements;
            for (next = first + 1; next < _full.size() && continues(first, elements, next);
                 ++next) {
                elements += _layout->parameter(next).elements;
            }
            if (_layout->parameter(first).type == _type
                && !is_sent_in_lease(_layout->parameter(first).trainable)) {
                broadcast(_full[first], elements,
                          engine_tag(*_layout, "values of parameter", first,
                                     _layout->parameter(first).name.c_str()));
            }
        }
    }

    /// @brief All-gathers a bucket of sharded parameters into a lease. Collective. If parameters
    /// are read in place, it only opens the lease.
    /// @param context `CollectiveTag::context`
    void gather(std::size_t bucket, char const* context = "") {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        T* const lease = open(bucket);
        if (gather_copies(lease, bucket, context)) {
            return;
        }
        if constexpr (is_offloaded) {
            _offload.states->read_parameters(bucket, _queue, reinterpret_cast<std::byte*>(lease),
                                             sizeof(T));
        } else if constexpr (is_on_host) {
            if (Range const own = _layout->extent(bucket, _rank); !own.is_empty()) {
                Backend::copy_bytes(_route.queue, lease + own.begin, _placed.at(bucket, own.begin),
                                    own.size() * sizeof(T));
            }
        }
        if (!_is_in_place) {
            gather_into(lease, bucket, context);
        }
    }

    /// @brief Gathers an open bucket once more, on several ranks. Collective.
    void gather_again(std::size_t bucket, char const* context) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        if (!gather_copies(_pool.at(bucket), bucket, context)) {
            gather_into(_pool.at(bucket), bucket, context);
        }
    }

    /// @brief Keeps this rank's part of a gathered bucket as its secondary copy.
    void keep_copy([[maybe_unused]] std::size_t bucket) {
        if constexpr (has_copies) {
            _copies.keep(bucket, _pool.at(bucket), _route.queue);
        }
    }

    /// @brief Drops all secondary copies: parameters are about to change.
    void drop_copies() noexcept {
        if constexpr (has_copies) {
            _copies.drop_all();
        }
    }

    /// @brief Makes the communication queue wait for the last use of every released lease.
    void wait_for_leases() const { _pool.wait_for_last_uses(_queue, Fence::parameter_lease_reuse); }

    /// @brief Ends a lease. With poison it waits for the last reader and fills the lease with NaN,
    /// so that a pointer that was kept too long reads NaN.
    void close(std::size_t bucket, Event last_use) {
        if (_poison) {
            Backend::wait(_route.queue, last_use, Fence::weights_read);
            Backend::fill(_route.queue, _pool.at(bucket), _layout->elements(bucket), poison());
            last_use = Backend::record(_route.queue);
        }
        _pool.close(bucket, std::move(last_use));
    }

    /// @brief Returns the bytes of a bucket that `gather_replicas` communicates in place, and 0 for
    /// one that it copies, which cannot be part of a group.
    [[nodiscard]] std::size_t bytes_in_place(std::size_t bucket) const noexcept {
        return is_copied(bucket) || has_codes ? 0 : _layout->elements(bucket) * sizeof(T);
    }

    /// @brief Makes the replicas of an updated bucket equal, in codes if weights have a codec.
    /// Collective.
    void publish(std::size_t bucket) {
        if constexpr (has_codes) {
            [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
            _codes.gather(bucket, nullptr, _route,
                          bucket_tag(CollectivePurpose::publish, "encoded parameters of bucket",
                                     *_layout, bucket));
        } else {
            gather_replicas(bucket);
        }
    }

    /// @brief All-gathers the extents of a bucket into the replicas, through a lease if the bucket
    /// cannot be communicated in place. Collective.
    void gather_replicas(std::size_t bucket) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        CollectiveTag const tag =
            bucket_tag(CollectivePurpose::publish, "parameters of bucket", *_layout, bucket);
        if (is_copied(bucket)) {
            T* const staging = open(bucket);
            Range const own = _layout->extent(bucket, _rank);
            Backend::copy_to_bucket(_queue, _owned.of(bucket), staging);
            shard_of(*_communicator).all_gather(staging + own.begin, staging, cuts, _queue, tag);
            Backend::copy_from_bucket(_queue, _pieces.of(bucket), static_cast<T const*>(staging));
            _pool.close(bucket, Backend::record(_queue));
        } else {
            T* const base = _storage == Storage::owned
                                ? _placed.at(bucket, 0)
                                : _block + _layout->bucket(bucket).block_begin;
            shard_of(*_communicator).all_gather(base + cuts[_rank], base, cuts, _queue, tag);
        }
    }

private:
    static constexpr bool is_offloaded = Config::Offload::offloads(BufferKind::parameters);
    static constexpr bool is_on_host = lies_on_host<Config>(BufferKind::parameters);
    static constexpr bool has_copies = SecondaryCommunicator<Communicator>;
    static constexpr bool has_codes = has_weight_codec<Types>;
    static constexpr bool has_frozen_codes = has_frozen_codec<Types>;

    /// Whether the shards of a bucket are codes.
    [[nodiscard]] bool lies_in_codes([[maybe_unused]] std::size_t bucket) const noexcept {
        return has_frozen_codes && !_layout->bucket(bucket).trainable;
    }

    void keep_codes([[maybe_unused]] std::size_t bucket, [[maybe_unused]] T* values) {
        if constexpr (has_frozen_codes) {
            _frozen.keep(bucket, values);
        }
    }

    [[nodiscard]] CollectiveTag gather_tag(char const* what, std::size_t bucket,
                                           char const* context) const noexcept {
        CollectiveTag tag = bucket_tag(CollectivePurpose::gather, what, *_layout, bucket);
        tag.context = context;
        return tag;
    }

    /// Gathers a bucket from its secondary copies. @return false if there are none
    bool gather_copies([[maybe_unused]] T* lease, [[maybe_unused]] std::size_t bucket,
                       [[maybe_unused]] char const* context) {
        if constexpr (has_copies) {
            if (_copies.has(bucket)) {
                _copies.gather(bucket, lease, _route.queue,
                               gather_tag("secondary copy of bucket", bucket, context));
                return true;
            }
        }
        return false;
    }

    void gather_into(T* lease, std::size_t bucket, char const* context) {
        [[maybe_unused]] auto const gather_codes = [&](auto& codes) {
            codes.gather(bucket, lease, _route,
                         gather_tag("encoded parameters of bucket", bucket, context));
        };
        if constexpr (has_codes) {
            if (_codes.encodes(bucket)) {
                return gather_codes(_codes);
            }
        }
        if constexpr (has_frozen_codes) {
            if (_frozen.encodes(bucket)) {
                return gather_codes(_frozen);
            }
        }
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        if (cuts.back() != 0) {
            T const* own = lease + cuts[_rank]; // already there, read from the tier or the host
            if constexpr (!is_offloaded && !is_on_host) {
                own = _placed.at(bucket, cuts[_rank]);
            }
            _route.ranks->all_gather(own, lease, cuts, _route.queue,
                                     gather_tag("parameters of bucket", bucket, context));
        }
    }

    /// Leases memory that was claimed, or whose place is free.
    T* open(std::size_t bucket) {
        if (!_pool.claim(bucket)) {
            throw_no_room(*_layout, bucket, static_cast<std::size_t>(_communicator->rank()));
        }
        return _pool.open(bucket, _route.queue, Fence::parameter_lease_reuse);
    }

    [[gnu::cold]] ParameterStore(TypeContext<Config> const& context, LeasePlan const& leases)
        : _type(context.type), _layout(context.layout), _communicator(context.communicator),
          _queue(context.queue), _route(context.gather_route()), _rank(context.shard_rank()),
          _is_sharded(context.row.shards_parameters()), _is_in_place(reads_in_place(context)),
          _storage(context.options->storage), _poison(context.options->poison),
          _has_copy_leases(context.row.reduced_gradients == Placement::sharded),
          _pool(leases, *context.memory, BufferKind::parameter_leases), _copies(context),
          _offload(context.offload), _full(context.parameters.size()), _cuts(_layout->world()),
          _backlog(context.queue), _drain(context.queue) {
        if constexpr (std::is_same_v<T, typename Config::Parameter>) { // a block holds one type
            _block = context.options->adopted_block.data();
        }
        if constexpr (is_offloaded) {
            _placed = {*_offload.states, 0};
        } else if (_storage == Storage::owned) {
            _placed = PlacedBuffer<T>(
                *_layout, has_frozen_codes ? _layout->trainable_buckets() : _layout->buckets(),
                context.type, _rank, context.row.parameters,
                memory_of<BufferKind::parameters>(context), BufferKind::parameters);
            Backend::fill(_queue, _placed.data(), _placed.size(), unset());
        }
        for (std::size_t index = 0; index < _full.size() && _storage != Storage::owned; ++index) {
            AnyParameter const& parameter = context.parameters[index];
            _full[index] =
                parameter.spec.type == context.type ? static_cast<T*>(parameter.data) : nullptr;
        }
        if (_storage != Storage::owned) {
            _pieces = {*_layout, _queue, *context.memory, _full, [&](std::size_t bucket) {
                           return is_copied(bucket) ? Range{0, _layout->elements(bucket)} : Range{};
                       }};
            _owned = {*_layout, _queue, *context.memory, _full, [&](std::size_t bucket) {
                          return is_copied(bucket) ? _layout->extent(bucket, _rank) : Range{};
                      }};
        } else if (!_is_sharded) {
            find_owned(context.type);
        }
        if constexpr (has_codes) {
            _codes = {context,
                      [&](std::size_t bucket, Piece const& piece) { return slice(bucket, piece); },
                      [&](std::size_t bucket, Piece const& piece) {
                          return _is_sharded ? nullptr : slice(bucket, piece);
                      }};
        }
        if constexpr (has_frozen_codes) {
            auto const in_lease = [](auto&&...) -> T* { return nullptr; };
            _frozen = {context, in_lease, in_lease};
        }
    }

    /// Whether a parameter of the adopted block follows the run of `elements` elements that begins
    /// with parameter `first`. False for scattered parameters, whose addresses differ between
    /// ranks.
    [[nodiscard]] bool continues(std::size_t first, std::size_t elements,
                                 std::size_t parameter) const noexcept {
        return _storage == Storage::adopted
               && (_layout->parameter(parameter).elements == 0
                   || _full[parameter] == _full[first] + elements);
    }

    /// Whether scattered parameters are sent through leases, which exist only for those that are
    /// published (stages 1 and 2).
    [[nodiscard]] bool is_sent_in_lease(bool trainable) const noexcept {
        return _storage == Storage::scattered && _has_copy_leases && trainable;
    }

    [[gnu::cold]] void broadcast_copies(std::size_t bucket) {
        if (_layout->elements(bucket) == 0) {
            return;
        }
        T* const staging = open(bucket);
        if (_communicator->rank() == 0) {
            Backend::copy_to_bucket(_queue, _pieces.of(bucket), staging);
        }
        broadcast(staging, _layout->elements(bucket),
                  bucket_tag(CollectivePurpose::publish, "values of bucket", *_layout, bucket));
        if (_communicator->rank() != 0) {
            Backend::copy_from_bucket(_queue, _pieces.of(bucket), static_cast<T const*>(staging));
        }
        _pool.close(bucket, Backend::record(_queue));
    }

    void broadcast(T* values, std::size_t elements, CollectiveTag tag) {
        if (elements != 0) {
            _communicator->broadcast(values, elements, 0, _queue, tag);
        }
    }

    static T poison() noexcept { return from_float<T>(std::numeric_limits<float>::quiet_NaN()); }

    /// The value of memory that nothing has written.
    [[nodiscard]] T unset() const noexcept { return _poison ? poison() : T{}; }

    [[gnu::cold]] void find_owned(std::size_t type) {
        for_buckets(*_layout, {0, _layout->buckets()}, type, [&](std::size_t bucket) {
            for (Piece const& piece : _layout->pieces(bucket)) {
                _full[piece.parameter] = _placed.at(bucket, piece.bucket_begin);
            }
        });
    }

    /// Whether a bucket is communicated through a lease.
    [[nodiscard]] bool is_copied(std::size_t bucket) const noexcept {
        return _storage == Storage::scattered
               || (_storage == Storage::adopted && _layout->bucket(bucket).is_staged);
    }

    [[gnu::cold]] void write_initial(AnyParameter const& parameter, T* out) {
        if (_communicator->rank() != 0 || parameter.spec.elements == 0) {
            return;
        }
        if (parameter.initialise) {
            Backend::synchronise(Backend::record(_queue));
            initialise(parameter, 0, parameter.spec.elements, out);
        } else if (parameter.initial != nullptr) {
            Backend::copy_bytes(_queue, out, parameter.initial,
                                parameter.spec.elements * sizeof(T));
            _backlog.count();
        } else if (_poison) { // no values were registered: they are zero
            Backend::fill(_queue, out, parameter.spec.elements, T{});
            _backlog.count();
        }
    }

    /// Calls the caller's initialiser, which writes host memory, for elements from `first` on.
    /// Memory that the host cannot write is filled through a host buffer.
    [[gnu::cold]] void initialise(AnyParameter const& parameter, std::size_t first,
                                  std::size_t elements, T* out) {
        if constexpr (requires { requires Backend::is_device; }) {
            constexpr std::size_t most = std::size_t{1} << 20U;
            std::vector<T> values(elements < most ? elements : most);
            for (std::size_t begin = 0; begin < elements; begin += most) {
                std::size_t const count = elements - begin < most ? elements - begin : most;
                parameter.initialise(first + begin,
                                     std::as_writable_bytes(std::span(values.data(), count)));
                Backend::copy_bytes(_queue, out + begin, values.data(), count * sizeof(T));
                Backend::synchronise(Backend::record(_queue));
            }
        } else {
            parameter.initialise(first, std::as_writable_bytes(std::span(out, elements)));
        }
    }

    std::size_t _type;
    FlatLayout const* _layout;
    Communicator* _communicator;
    Queue _queue;
    GatherRoute<Config> _route; ///< of gathers into leases
    std::size_t _rank;          ///< among those over which parameters are cut
    bool _is_sharded;
    bool _is_in_place; ///< see `reads_in_place`
    Storage _storage;
    bool _poison;
    bool _has_copy_leases; ///< buckets of scattered parameters have leases
    T* _block = nullptr;
    BucketPool<T, Backend> _pool;
    [[no_unique_address]] SecondaryCopiesOf<Config, Types> _copies;
    UpdatedArray<T, Config, BufferKind::parameters> _placed;
    [[no_unique_address]] OffloadRef<Config> _offload;
    List<T*> _full; ///< per parameter: replicated values
    CutList _cuts;  ///< cuts of the bucket that is sent
    /// Pieces of buckets, and this rank's slices, that are copied between a lease and caller-owned
    /// memory because they cannot be communicated in place.
    BucketCopies<T, Backend> _pieces;
    BucketCopies<T, Backend> _owned;
    [[no_unique_address]] WeightCodesOf<Config, Types, false> _codes;
    [[no_unique_address]] WeightCodesOf<Config, Types, true> _frozen;
    SetUpBacklog<Backend> _backlog;
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
