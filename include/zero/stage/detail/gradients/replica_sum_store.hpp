#pragma once

#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/padding.hpp"
#include "../common/drain.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Without replicas there is nothing to add.
struct NoReplicas {
    template <class Context>
    explicit NoReplicas(Context const& /*context*/) noexcept {}
};

/// @brief Names the reductions of a micro-step inside a group.
class ReductionNames {
public:
    /// @brief Sets the name, so that ranks that differ in the number of micro-steps are told: those
    /// that end the step wait for other replicas next.
    /// @param is_last whether the micro-step was announced as the last one
    void name_reductions(bool is_last) noexcept {
        _reductions = is_last ? "last gradients of bucket" : usual;
    }

    /// @brief The text of their tags.
    [[nodiscard]] char const* reductions() const noexcept { return _reductions; }

private:
    static constexpr char const* usual = "gradients of bucket";

    char const* _reductions = usual;
};

/// @brief Adds the sums of a step over the replicas of a `GroupedCommunicator`, in place. A member
/// of GradientSumStore.
///
/// Each rank sends its own extents, to the ranks that own the same. Where accumulation buffer and
/// payload have different types, or the sums of a device lie on its host, they are rounded to the
/// payload in a buffer; an extent that is larger than the buffer is sent in chunks, which change no
/// bit.
template <class Config, class Types>
class ReplicaSumStore : public ReductionNames {
public:
    using A = typename Types::Accumulation;
    using Backend = typename Config::Backend;
    using Communicator = typename Config::Communicator;
    using Payload =
        std::conditional_t<Communicator::sends_float_between, float, typename Types::Communication>;

    /// @brief Returns the elements of the buffer; 0 if nothing is converted or sent.
    [[nodiscard]] static std::size_t buffer_elements(EngineContext<Config> const& context,
                                                     std::size_t type) {
        std::size_t largest = 0;
        if (is_converted && context.communicator->replicas().size() != 1) {
            FlatLayout const& layout = *context.layout;
            for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
                if (layout.bucket(bucket).type == type) {
                    std::size_t const own = layout.extent(bucket, context.shard_rank()).size();
                    largest = larger(largest, own);
                }
            }
        }
        return smaller(largest, capacity(context));
    }

    /// @brief Returns its bytes.
    [[nodiscard]] static std::size_t buffer_bytes(EngineContext<Config> const& context,
                                                  std::size_t type) {
        return buffer_elements(context, type) * sizeof(Payload);
    }

    [[gnu::cold]] explicit ReplicaSumStore(TypeContext<Config> const& context)
        : _replicas(&context.communicator->replicas()), _queue(context.queue),
          _capacity(capacity(context)),
          _buffer(*context.memory, buffer_elements(context, context.type), BufferKind::wire),
          _cuts(static_cast<std::size_t>(_replicas->size()) + 1, 0), _drain(context.queue) {}

    /// @brief Adds the sums of an extent over the replicas: rounds them to the payload, adds them
    /// in float in the order of replicas, and rounds once. Collective.
    void add_up(A* sums, std::size_t elements, CollectiveTag const& tag) {
        if (_replicas->size() == 1) {
            return;
        }
        if constexpr (is_converted) {
            for (std::size_t begin = 0; begin < elements; begin += _capacity) {
                std::size_t const part = smaller(_capacity, elements - begin);
                Backend::convert(_queue, _buffer.data(), sums + begin, part, 1.0F);
                send(_buffer.data(), part, tag);
                Backend::convert(_queue, sums + begin, static_cast<Payload const*>(_buffer.data()),
                                 part, 1.0F);
            }
        } else if (elements != 0) {
            send(sums, elements, tag);
        }
    }

private:
    /// Collectives get memory of the device only.
    static constexpr bool is_converted =
        !std::is_same_v<A, Payload> || lies_on_host<Config>(BufferKind::gradients);

    static std::size_t capacity(EngineContext<Config> const& context) {
        std::size_t const fits = context.options->reduction.wire_bytes / sizeof(Payload);
        return larger(fits / granularity * granularity, std::size_t{granularity});
    }

    void send(Payload* values, std::size_t elements, CollectiveTag const& tag) {
        std::size_t const replicas = _cuts.size() - 1;
        std::size_t const part = even_extent(elements, replicas);
        for (std::size_t replica = 1; replica <= replicas; ++replica) {
            _cuts[replica] = smaller(_cuts[replica - 1] + part, elements);
        }
        _replicas->all_reduce(static_cast<Payload const*>(values), values,
                              std::span<std::size_t const>(_cuts.data(), _cuts.size()), _queue,
                              tag);
    }

    typename Communicator::Part* _replicas;
    typename Backend::Queue _queue;
    std::size_t _capacity; ///< in elements
    Buffer<Payload> _buffer;
    std::vector<std::size_t> _cuts; ///< parts of the extent that is sent
    Drain<Backend> _drain;
};

template <class Config, class Types>
class EncodedReplicaSums; // stage/wire.hpp includes it

template <class Config, class Types, bool HasReplicas>
struct ReplicaSums {
    using type = NoReplicas;
};

template <class Config, class Types>
struct ReplicaSums<Config, Types, true> {
    using type = std::conditional_t<has_replica_codec<Types>, EncodedReplicaSums<Config, Types>,
                                    ReplicaSumStore<Config, Types>>;
};

/// @brief The sums over replicas of an engine, or nothing.
template <class Config, class Types>
using ReplicaSumsOf =
    typename ReplicaSums<Config, Types, GroupedCommunicator<typename Config::Communicator>>::type;

} // namespace ZERO_NAMESPACE::detail
