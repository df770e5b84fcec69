#pragma once

#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../ops/codec.hpp"
#include "../../../ops/power_codes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The role of an array in the training state of one parameter type.
enum class ArrayKind : std::uint8_t {
    parameter,
    master,      ///< MasterWeights
    remainder,   ///< SplitMasterWeights: the lower 16 bits
    rounded_up,  ///< SplitMasterWeights: one bit per element
    state,       ///< a state of the optimizer
    state_scale, ///< BlockScaledState: the scales of a state
    frozen,      ///< FrozenWeights: the codes of frozen parameters, instead of `parameter`
    gradient     ///< reduced gradients, which exist inside a step only; what `ErrorFeedback` keeps
};

/// @brief The functions of a `Codec`.
struct BlockCodec {
    void (*encode)(float const (&)[coded_elements], std::uint8_t*) noexcept;
    void (*decode)(std::uint8_t const*, float (&)[coded_elements]) noexcept;
    std::size_t bytes; ///< of a block

    /// @brief Encodes elements in blocks, the last of which is completed with zeros.
    void write(float const* values, std::size_t elements, std::byte* codes) const;

    /// @brief Decodes elements. @param first offset of the first one in its block, the first of
    /// `codes`
    void read(std::byte const* codes, std::size_t first, std::size_t elements, float* out) const;
};

template <class C>
inline constexpr BlockCodec block_codec{C::encode, C::decode, C::bytes_per_block};

/// @brief The form of an array, the same for all slices and on every rank.
struct ArrayForm {
    ArrayKind kind = ArrayKind::parameter;
    std::size_t index = 0;      ///< index of the optimizer's state; 0 for other kinds
    DType dtype = DType::bytes; ///< type of an item; `bytes` also for 16-bit remainders
    std::size_t item_bytes = 0;
    /// An item belongs to one element, or to a group of elements that starts at a multiple of its
    /// size: a scale or a block of codes to 64 elements, a byte of bits to 8.
    std::size_t item_elements = 1;
    BlockCodec const* codec = nullptr; ///< of items that are codes; `dtype` is what they decode to

    /// @brief Returns the bytes of `elements` elements that start at an item.
    [[nodiscard]] constexpr std::size_t bytes(std::size_t elements) const noexcept {
        return (elements + item_elements - 1) / item_elements * item_bytes;
    }
};

/// @brief The slice of a parameter that this rank holds in one array.
struct HeldSlice {
    std::size_t parameter = 0;
    std::size_t begin = 0; ///< offset of the first element in the parameter
    std::size_t elements = 0;
    /// Its address. The address of an offloaded state is not memory: `StateAccess::copy` knows
    /// where the state lies.
    void* data = nullptr;
};

/// @brief The slices of one array of the training state (parameters, master weights, a moment, ...)
/// that this rank holds. A view: it owns no state.
struct HeldArray {
    std::size_t type = 0; ///< index of the parameter type
    ArrayForm form{};
    bool has_frozen = false; ///< whether frozen parameters have this array
    List<HeldSlice> slices{};
    bool has_trainable = true; ///< whether trainable ones have it

    void add(Piece const& piece, void* data) {
        slices.push_back({piece.parameter, piece.parameter_begin, piece.elements, data});
    }

    /// @brief Returns the bytes of the first `elements` elements of a parameter. Extents end at
    /// multiples of 64 elements.
    [[nodiscard]] std::size_t bytes(std::size_t elements) const noexcept {
        return form.bytes(elements);
    }

    /// @brief Whether a parameter has such an array.
    [[nodiscard]] bool has(FlatLayout const& layout, std::size_t parameter) const;

    /// @brief Returns the bytes of the largest parameter.
    [[gnu::cold]] [[nodiscard]] std::size_t largest(FlatLayout const& layout) const;

    /// @brief Returns the slices in ascending order of their parameters and offsets.
    [[gnu::cold]] [[nodiscard]] List<HeldSlice> by_parameter() const;

    /// @brief Returns where each rank's slice of a parameter ends, in bytes: W + 1 offsets. The
    /// parameter must be in one bucket.
    [[gnu::cold]] [[nodiscard]] std::vector<std::size_t> byte_cuts(FlatLayout const& layout,
                                                                   std::size_t parameter) const;
};

/// @brief Reads and writes the training state that this rank holds as floats, whatever form it is
/// stored in: master weights, split or block-scaled, in memory of the host or of a device.
///
/// A view of the arrays of one layout. It depends on no element type, so it is compiled once.
/// `TrainingState` and checkpoints use it. Nothing else may use the memory during a call.
class StateTable {
public:
    /// Copies bytes between the host and the memory of the state, and waits: `(to, from, bytes)`.
    using Copy = FunctionRef<void*, void const*, std::size_t>;

    /// @param arrays arrays of all parameter types
    [[gnu::cold]] StateTable(FlatLayout const& layout, List<HeldArray> arrays);

    [[nodiscard]] List<HeldArray> const& arrays() const noexcept { return _arrays; }

    /// @brief Returns the slices of a parameter in ascending order. @param array index of the array
    [[nodiscard]] std::span<HeldSlice const> slices(std::size_t array, std::size_t parameter) const;

    /// @brief Returns the index of an array; the number of arrays if there is none.
    [[nodiscard]] std::size_t find(std::size_t type, ArrayKind kind,
                                   std::size_t state = 0) const noexcept;

    /// @brief Returns the index of the array of a parameter: `frozen` for its weights, if they lie
    /// in codes.
    [[nodiscard]] std::size_t array_of(ArrayKind kind, std::size_t state,
                                       std::size_t parameter) const noexcept;

    /// @brief Returns the ranges of a parameter whose values this rank holds.
    /// @param kind `parameter` for the weight that the next step starts from, `state` or `gradient`
    [[nodiscard]] std::vector<Range> held(ArrayKind kind, std::size_t state,
                                          std::size_t parameter) const;

    /// @brief Reads a range of a parameter, all of which this rank must hold.
    void load(ArrayKind kind, std::size_t state, std::size_t parameter, Range range, Copy copy,
              float* out) const;

    /// @brief Writes those elements of `range` that this rank holds, rounded to the stored types. A
    /// weight is written to master weights and parameters. Blocks that share a scale or codes must
    /// be in the range as a whole.
    /// @param values one per element of `range`
    void store(ArrayKind kind, std::size_t state, std::size_t parameter, Range range, Copy copy,
               float const* values) const;

private:
    /// The array whose slices decide what is held.
    [[nodiscard]] std::size_t lead(ArrayKind kind, std::size_t state, std::size_t parameter) const;

    /// Calls `visit(slice, chunk)` for the parts of an array's slices inside a range. Chunks have
    /// at most `state_chunk` elements, and are cut at multiples of it in the slice.
    template <class Visitor>
    void for_chunks(std::size_t array, std::size_t parameter, Range range, Visitor&& visit) const;

    [[nodiscard]] HeldSlice const& slice_at(std::size_t array, std::size_t parameter,
                                            std::size_t element) const;
    void store_weights(std::size_t parameter, Range range, Copy copy, float const* values) const;
    void store_states(std::size_t state, std::size_t parameter, Range range, Copy copy,
                      float const* values) const;
    void store_items(std::size_t array, std::size_t parameter, Range range, Copy copy,
                     float const* values, DType through = DType::float32) const;
    void store_bits(std::size_t array, std::size_t parameter, Range range, Copy copy,
                    float const* values) const;

    FlatLayout const* _layout;
    List<HeldArray> _arrays;
    List<std::vector<std::size_t>> _first; ///< by array and parameter: index of its first slice
};

/// @brief Number of elements that are converted at a time. It bounds the memory and is a multiple
/// of every `item_elements`.
inline constexpr std::size_t state_chunk = 4096;

/// @brief Host memory for the items of a chunk.
using ItemBytes = std::array<std::byte, state_chunk * sizeof(float)>;

/// @brief Returns item `index` of items that need no alignment.
template <class T>
[[nodiscard]] T item_at(std::byte const* items, std::size_t index) noexcept {
    T item;
    std::memcpy(&item, items + index * sizeof(T), sizeof(T));
    return item;
}

/// @brief Returns item `index` as a float.
[[nodiscard]] inline float decode_item(DType dtype, std::byte const* items, std::size_t index) {
    switch (dtype) {
    case DType::float32: return item_at<float>(items, index);
    case DType::bfloat16: return to_float(item_at<bfloat16>(items, index));
    default: return to_float(item_at<float16>(items, index));
    }
}

/// @brief Returns item `index` of states that have scales.
[[nodiscard]] inline float decode_state(DType dtype, std::byte const* items, std::size_t index,
                                        float scale) {
    return dtype == DType::power8 ? ops::state_value(item_at<power8>(items, index), scale)
                                  : decode_item(dtype, items, index) * scale;
}

template <class T>
void put_item(std::byte* items, std::size_t index, T item) noexcept {
    std::memcpy(items + index * sizeof(T), &item, sizeof(T));
}

/// @brief Rounds a float to item `index`.
inline void encode_item(DType dtype, std::byte* items, std::size_t index, float value) {
    switch (dtype) {
    case DType::float32: put_item(items, index, value); break;
    case DType::bfloat16: put_item(items, index, from_float<bfloat16>(value)); break;
    default: put_item(items, index, from_float<float16>(value));
    }
}

[[nodiscard]] inline float rounded_to(DType dtype, float value) {
    std::array<std::byte, sizeof(float)> item{};
    encode_item(dtype, item.data(), 0, value);
    return decode_item(dtype, item.data(), 0);
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "state_table.ipp"
#endif
