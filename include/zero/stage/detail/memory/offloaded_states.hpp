#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/piece.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"
#include "placed_buffer.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The states that a rank moves through staging memory. Without `Offload` it is empty and
/// does nothing; with it, see offload_pipeline.hpp.
template <class Config, bool IsAny>
class OffloadedStates {
    static_assert(!IsAny, "zero: Offload needs #include <zero/stage/offload.hpp>.");

public:
    template <class... Arguments>
    explicit OffloadedStates(Arguments const&... /*unused*/) noexcept {}
};

/// @brief Owns the `OffloadedStates` of an engine, which a rebuild replaces. Empty without
/// `Offload`.
template <class Config>
using OwnedOffload =
    std::conditional_t<Config::Offload::is_any, std::unique_ptr<OffloadedStates<Config>>,
                       OffloadedStates<Config>>;

/// @brief Makes an `OwnedOffload`. @param arguments of the constructor of `OffloadedStates`
template <class Config, class... Arguments>
[[gnu::cold]] OwnedOffload<Config> make_offload(Arguments&&... arguments) {
    if constexpr (Config::Offload::is_any) {
        return std::make_unique<OffloadedStates<Config>>(std::forward<Arguments>(arguments)...);
    } else {
        return OwnedOffload<Config>();
    }
}

/// @brief The states of one parameter type that are offloaded: where they lie, and the chunk of
/// each slice of its table. Empty without `Offload`.
template <class Config, bool IsAny = Config::Offload::is_any>
struct OffloadedSlices {
    explicit OffloadedSlices(TypeContext<Config> const& /*context*/) noexcept {}
};

template <class Config>
struct OffloadedSlices<Config, true> {
    OffloadedStates<Config>* states;
    std::size_t type;
    std::vector<std::size_t> chunks{};
    explicit OffloadedSlices(TypeContext<Config> const& context)
        : states(context.offload.states), type(context.type) {}
};

/// @brief Returns the memory of the states of a kind that are no `OffloadedArray`.
template <BufferKind kind, class Config>
[[nodiscard]] MemoryResource& memory_of(EngineContext<Config> const& context) {
    if constexpr (lies_on_host<Config>(kind)) {
        return Config::Backend::staging_memory();
    } else {
        return *context.memory;
    }
}

/// @brief The warm-up of an engine with `DelayedUpdate`. Empty without.
template <class Config, bool IsAny = delays_update<Config>>
struct WarmUp {};

template <class Config>
struct WarmUp<Config, true> {
    bool is_over = false; ///< updates were counted, and are more than `warm_up_steps`
};

/// @brief The update of one parameter type that is delayed, on a host. Empty otherwise, and where
/// the backend is a device; see delayed_update.hpp.
template <class Config, class Types, class Slice,
          bool IsAny = delays_update<Config>&& Config::Offload::is_any>
class DelayedSlices {};

/// @brief The update of one parameter type by the host. Empty unless `updates_on_host`; see
/// host_update.hpp.
template <class Config, class Types, class Slice, bool IsAny = updates_on_host<Config>>
class HostUpdate {};

/// @brief An array of the states that are offloaded: its addresses in staging memory, or where it
/// stays in memory. Owns nothing. It takes the place of `PlacedBuffer` and `PerBlockBuffer`.
///
/// The values exist while their chunk is in staging memory. The array as a whole does not exist, so
/// `data()` is null and `size()` is 0.
template <class T, class Config, BufferKind kind>
class OffloadedArray {
public:
    OffloadedArray() = default;

    /// @param array number of the array among those of its kind
    OffloadedArray(OffloadedStates<Config> const& states, std::size_t array)
        : _states(&states), _array(array) {}

    /// @brief The address of the slice that begins at element `index` of a bucket.
    [[nodiscard]] T* at(std::size_t bucket, std::size_t index) const {
        return reinterpret_cast<T*>(_states->address(bucket, index, kind, _array));
    }

    /// @brief The same, named as in `PerBlockBuffer`.
    [[nodiscard]] T* take(std::size_t bucket, Piece const& piece) const {
        return at(bucket, piece.bucket_begin);
    }

    [[nodiscard]] static constexpr T* data() noexcept { return nullptr; }
    [[nodiscard]] static constexpr std::size_t size() noexcept { return 0; }

private:
    OffloadedStates<Config> const* _states = nullptr;
    std::size_t _array = 0;
};

/// @brief Memory for one T per element that this rank updates.
template <class T, class Config, BufferKind kind>
using UpdatedArray = std::conditional_t<Config::Offload::offloads(kind),
                                        OffloadedArray<T, Config, kind>, PlacedBuffer<T>>;

/// @brief Memory for a few numbers per block of 64 elements that this rank updates.
template <class T, class Config, BufferKind kind>
using UpdatedBlocks = std::conditional_t<Config::Offload::offloads(kind),
                                         OffloadedArray<T, Config, kind>, PerBlockBuffer<T>>;

/// @brief Makes an `UpdatedArray`.
/// @param array number among the arrays of this kind
template <BufferKind kind, class T, class Config>
[[nodiscard]] UpdatedArray<T, Config, kind> updated_array(TypeContext<Config> const& context,
                                                          [[maybe_unused]] std::size_t array) {
    if constexpr (Config::Offload::offloads(kind)) {
        return {*context.offload.states, array};
    } else {
        return placed_for_optimizer<T>(context, memory_of<kind>(context), kind);
    }
}

/// @brief Makes `UpdatedBlocks`. @param numbers count of numbers per block
template <BufferKind kind, class T, class Config>
[[nodiscard]] UpdatedBlocks<T, Config, kind> updated_blocks(TypeContext<Config> const& context,
                                                            std::size_t numbers,
                                                            [[maybe_unused]] std::size_t array) {
    if constexpr (Config::Offload::offloads(kind)) {
        return {*context.offload.states, array};
    } else {
        return {*context.layout,
                context.type,
                context.shard_rank(),
                context.row.optimizer_state,
                numbers,
                memory_of<kind>(context),
                kind};
    }
}

} // namespace ZERO_NAMESPACE::detail
