#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../contiguous_partitioner.hpp"
#include "../../partitioner.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief A type-erased `Partitioner`. Layouts are made through it, so that they are compiled once
/// and not for each composition.
struct PartitionerRef {
    bool cuts_parameters;
    bool is_even;

    /// Whether `partition` is that of `ContiguousPartitioner`, which needs no list of cuts.
    bool is_contiguous;

    /// Null unless the partitioner is an `OrderingPartitioner`.
    std::vector<std::size_t> (*order)(std::span<std::size_t const> elements, std::size_t world);

    /// The options of the partitioner; null if it has none. They must outlive this.
    void const* options;

    /// Begins a group and calls `use` with the address of its state, which lives until `use`
    /// returns. @param rows by parameter, 0 if it is no matrix
    void (*with_state)(std::span<std::size_t const> elements, std::span<std::size_t const> rows,
                       std::size_t world, void const* options, FunctionRef<void*> use);

    /// Null unless the partitioner is a `MatrixKeepingPartitioner`.
    bool (*is_spread)(void const* state, std::size_t index);

    void (*partition)(std::span<PartitionItem> items, void* state, std::span<std::size_t> cuts);
};

/// @brief Returns whether the partitioner's `partition` is that of `ContiguousPartitioner`, and not
/// one that hides it.
template <class Partitioner>
constexpr bool partitions_contiguously() noexcept {
    if constexpr (std::same_as<typename Partitioner::State, ContiguousPartitioner::State>
                  && requires {
                         {
                             &Partitioner::partition
                         } -> std::same_as<decltype(&ContiguousPartitioner::partition)>;
                     }) {
        return &Partitioner::partition == &ContiguousPartitioner::partition;
    }
    return false;
}

/// @param options must outlive the result
template <class Partitioner>
constexpr PartitionerRef
partitioner_ref(partitioner_options_t<Partitioner> const* options = nullptr) noexcept {
    using State = typename Partitioner::State;
    PartitionerRef ref{
        Partitioner::cuts_parameters,
        Partitioner::is_even,
        partitions_contiguously<Partitioner>(),
        nullptr,
        options,
        [](std::span<std::size_t const> elements,
           [[maybe_unused]] std::span<std::size_t const> rows, std::size_t world,
           [[maybe_unused]] void const* given, FunctionRef<void*> use) {
            if constexpr (MatrixKeepingPartitioner<Partitioner>) {
                State state = Partitioner::begin(elements, world, rows);
                use(&state);
            } else if constexpr (PartitionerHasOptions<Partitioner>) {
                using Options = partitioner_options_t<Partitioner>;
                State state =
                    Partitioner::begin(elements, world, *static_cast<Options const*>(given));
                use(&state);
            } else {
                State state = Partitioner::begin(elements, world);
                use(&state);
            }
        },
        nullptr,
        [](std::span<PartitionItem> items, void* state, std::span<std::size_t> cuts) {
            Partitioner::partition(items, *static_cast<State*>(state), cuts);
        }};
    if constexpr (OrderingPartitioner<Partitioner>) {
        ref.order = [](std::span<std::size_t const> elements, std::size_t world) {
            return Partitioner::order(elements, world);
        };
    }
    if constexpr (MatrixKeepingPartitioner<Partitioner>) {
        ref.is_spread = [](void const* state, std::size_t index) {
            return Partitioner::is_spread(*static_cast<State const*>(state), index);
        };
    }
    return ref;
}

} // namespace ZERO_NAMESPACE::detail
