#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../common/engine_context.hpp"
#include "../common/set_up_backlog.hpp"
#include "../memory/offloaded_states.hpp"
#include "../memory/placed_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the master weights: the memory that the policy adds to the parameters of a rank's
/// shard, in one of the forms of `MasterForm`. A member of `OptimizerStore`.
///
/// Reading and rounding of master weights inside loops is in host/detail/master_weight_access.hpp.
///
/// - `place` returns the addresses of a slice's weights. Each slice is placed once, in table order.
/// - `complete` ends placing.
/// - `take_over` enqueues a copy of the parameters to the master weights: one command for all
///   slices. `round`, which only copies have, enqueues the opposite. If the store `is_by_chunk`,
///   both copy the given slices only.
/// - `show` fills the spans of an `OwnedSlice`.
template <class Config, class Types, MasterForm form = Types::master_form>
class MasterWeightStore;

/// @brief Parameters that are their own master weights: owns nothing.
template <class Config, class Types>
class MasterWeightStore<Config, Types, MasterForm::own> {
public:
    using P = typename Types::Parameter;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Pointers = MasterPointers<P, P>;
    static constexpr std::size_t bytes = 0;
    static constexpr std::size_t bytes_per_block = 0;
    static constexpr bool is_by_chunk = false;

    explicit MasterWeightStore(TypeContext<Config> const&) {}
    [[nodiscard]] Pointers place(std::size_t, Piece const&, P* parameter) {
        return {parameter, nullptr};
    }
    void complete(MemoryResource&) {}
    template <class Slices>
    void take_over(Slices const&) {}
    [[nodiscard]] static constexpr std::size_t table_bytes() noexcept { return 0; }
    template <class Owned>
    static void show(Pointers const& at, std::size_t elements, Owned& owned) {
        owned.values = {at.master, elements};
    }
};

/// @brief Copies of a wider type.
template <class Config, class Types>
class MasterWeightStore<Config, Types, MasterForm::copied> {
public:
    using P = typename Types::Parameter;
    using M = typename Types::Master;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Pointers = MasterPointers<M, P>;
    static constexpr std::size_t bytes = sizeof(M);
    static constexpr std::size_t bytes_per_block = 0;
    /// Whether one of the two weights exists only while its chunk is in staging memory.
    static constexpr bool is_by_chunk = Config::Offload::offloads(BufferKind::master_weights)
                                        || Config::Offload::offloads(BufferKind::parameters);

    [[gnu::cold]] explicit MasterWeightStore(TypeContext<Config> const& context)
        : _queue(context.queue), _master(updated_array<BufferKind::master_weights, M>(context, 0)) {
        bool const poison = context.options->poison;
        Backend::fill(_queue, _master.data(), _master.size(),
                      poison ? from_float<M>(std::numeric_limits<float>::quiet_NaN()) : M{});
    }

    [[nodiscard]] Pointers place(std::size_t bucket, Piece const& piece, P* parameter) {
        Pointers const at{_master.at(bucket, piece.bucket_begin), parameter};
        if constexpr (!is_by_chunk) {
            _rows.push_back(
                {parameter, static_cast<std::size_t>(at.master - _master.data()), piece.elements});
        }
        return at;
    }

    [[gnu::cold]] void complete(MemoryResource& memory) {
        _copies = {_queue, memory, std::move(_rows)};
    }

    template <class Slices>
    [[gnu::cold]] void take_over(Slices const& slices) {
        if constexpr (is_by_chunk) {
            for (auto const& slice : slices) {
                Backend::convert(_queue, slice.master, slice.parameter, slice.elements, 1.0F);
            }
        } else {
            Backend::copy_to_bucket(_queue, _copies.all(), _master.data());
        }
    }

    template <class Slices>
    void round([[maybe_unused]] Slices const& slices) const {
        if constexpr (is_by_chunk) {
            for (auto const& slice : slices) {
                Backend::convert(_queue, slice.parameter, slice.master, slice.elements, 1.0F);
            }
        } else {
            Backend::copy_from_bucket(_queue, _copies.all(), static_cast<M const*>(_master.data()));
        }
    }

    /// @brief Enqueues the rounding of `count` slices from number `first` on, unless it
    /// `is_by_chunk`.
    void round_some(std::size_t first, std::size_t count) const {
        Backend::copy_from_bucket(_queue, _copies.range(first, count),
                                  static_cast<M const*>(_master.data()));
    }

    [[nodiscard]] std::size_t table_bytes() const noexcept { return _copies.size_bytes(); }

    template <class Owned>
    static void show(Pointers const& at, std::size_t elements, Owned& owned) {
        owned.values = {at.parameter, elements};
        owned.master = {at.master, elements};
    }

private:
    using Row = CopySlice<P>; ///< a row of the table of copies, in which all slices are one
                              ///< "bucket"

    Queue _queue;
    UpdatedArray<M, Config, BufferKind::master_weights> _master;
    List<Row> _rows; ///< until `complete`
    typename Backend::template SliceTable<Row> _copies;
};

/// @brief The bits that complete bfloat16 parameters to floats: 16 bits per element, and one more
/// that says whether the parameter was rounded up.
template <class Config, class Types>
class MasterWeightStore<Config, Types, MasterForm::split> {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Pointers = SplitPointers;
    static constexpr std::size_t bytes = sizeof(std::uint16_t);
    static constexpr std::size_t bytes_per_block = block_elements / 8;
    static constexpr bool is_by_chunk = Config::Offload::offloads(BufferKind::master_weights);

    [[gnu::cold]] explicit MasterWeightStore(TypeContext<Config> const& context)
        : _queue(context.queue), _poison(context.options->poison), _backlog(context.queue),
          _remainder(updated_array<BufferKind::master_weights, std::uint16_t>(context, 0)),
          _rounded_up(updated_blocks<BufferKind::master_weights, std::uint8_t>(
              context, bytes_per_block, 1)) {
        fill_all(static_cast<std::uint16_t>(_poison ? 0xffffU : 0U));
    }

    [[nodiscard]] Pointers place(std::size_t bucket, Piece const& piece, bfloat16* parameter) {
        return {parameter, _remainder.at(bucket, piece.bucket_begin),
                _rounded_up.take(bucket, piece)};
    }

    void complete(MemoryResource&) {}

    /// The parameters are exact, so the remainder is zero. Poisoned padding stays poisoned.
    template <class Slices>
    [[gnu::cold]] void take_over(Slices const& slices) {
        if (!_poison && !is_by_chunk) {
            fill_all(0);
            return;
        }
        for (auto const& slice : slices) {
            Backend::fill(_queue, slice.remainder, slice.elements, std::uint16_t{0});
            Backend::fill(_queue, slice.rounded_up, (slice.elements + 7) / 8, std::uint8_t{0});
            _backlog.count();
        }
    }

    [[nodiscard]] static constexpr std::size_t table_bytes() noexcept { return 0; }

    template <class Owned>
    static void show(Pointers const& at, std::size_t elements, Owned& owned) {
        owned.values = {at.parameter, elements};
        owned.remainder = {at.remainder, elements};
        owned.rounded_up = {at.rounded_up, (elements + 7) / 8};
    }

private:
    [[gnu::cold]] void fill_all(std::uint16_t bits) {
        Backend::fill(_queue, _remainder.data(), _remainder.size(), bits);
        Backend::fill(_queue, _rounded_up.data(), _rounded_up.size(),
                      static_cast<std::uint8_t>(bits & 0xffU));
    }

    Queue _queue;
    bool _poison;
    SetUpBacklog<Backend> _backlog;
    UpdatedArray<std::uint16_t, Config, BufferKind::master_weights> _remainder;
    UpdatedBlocks<std::uint8_t, Config, BufferKind::master_weights> _rounded_up;
};

/// @brief Stochastically rounded parameters: owns nothing, but each element needs its index in the
/// model as the counter of its random numbers.
template <class Config, class Types>
class MasterWeightStore<Config, Types, MasterForm::stochastic> {
public:
    using P = typename Types::Parameter;
    using Queue = typename Config::Backend::Queue;
    using Pointers = StochasticPointers<P>;
    static constexpr std::size_t bytes = 0;
    static constexpr std::size_t bytes_per_block = 0;
    static constexpr bool is_by_chunk = false;

    explicit MasterWeightStore(TypeContext<Config> const& context) : _layout(context.layout) {}

    [[nodiscard]] Pointers place(std::size_t, Piece const& piece, P* parameter) {
        return {parameter,
                std::uint64_t{_layout->first_element(piece.parameter) + piece.parameter_begin}, 0};
    }

    void complete(MemoryResource&) {}
    template <class Slices>
    void take_over(Slices const&) {}
    [[nodiscard]] static constexpr std::size_t table_bytes() noexcept { return 0; }
    template <class Owned>
    static void show(Pointers const& at, std::size_t elements, Owned& owned) {
        owned.values = {at.parameter, elements};
    }

private:
    FlatLayout const* _layout;
};

} // namespace ZERO_NAMESPACE::detail
