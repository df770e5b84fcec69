#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../layout/piece.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../manifest.hpp"
#include "../tensor_entry.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the safetensors dtype of an array's items.
[[nodiscard]] char const* dtype_text(ArrayForm const& form) noexcept;

/// @brief Returns the safetensors dtype of a number type.
[[nodiscard]] inline char const* dtype_text(DType dtype) noexcept {
    return dtype_text(ArrayForm{ArrayKind::parameter, 0, dtype, size_of(dtype)});
}

/// @brief Returns the number type of stored items; nothing for bits, bytes and other types.
/// @param has_scales whether an array of scales belongs to them: then bytes are codes of states
[[nodiscard]] std::optional<DType> number_dtype(std::string const& dtype,
                                                bool has_scales = false) noexcept;

/// @brief The place of a layout's parameter in a manifest, where the tiles of a parameter are one.
struct StoredPlace {
    std::size_t parameter = 0; ///< index into `Manifest::parameters`
    std::size_t begin = 0;     ///< offset of its first element there
};

/// @brief Returns the places of all parameters of a layout, in ascending order.
[[nodiscard]] std::vector<StoredPlace> stored_places(FlatLayout const& layout);

/// @brief The name and shape under which a parameter of a layout is stored: for a tile, those of
/// its parameter.
[[nodiscard]] std::string const& stored_name(ParameterSpec const& spec) noexcept;
[[nodiscard]] std::vector<std::size_t> stored_shape(ParameterSpec const& spec);

/// @brief Adds each parameter's number of updates where it differs from the number of steps. A
/// checkpoint without one, such as an old one, has the number of steps.
void add_updates(ManifestScalars& scalars, FlatLayout const& layout,
                 std::span<std::uint64_t const> updates, std::uint64_t steps);

/// @brief Returns the number of updates of a parameter. Where tiles differ from the saved ones, a
/// tile has that of its first element.
[[nodiscard]] std::uint64_t stored_updates(ManifestScalars const& scalars,
                                           ParameterSpec const& spec, std::uint64_t steps);

/// @brief Fills the parameters of a manifest and the intervals that each rank owns; O(parameters +
/// W slices).
/// @param only the rank whose file is planned: its intervals alone. Empty: all, for the manifest
/// itself
void add_parameters(Manifest& manifest, FlatLayout const& layout, std::optional<std::size_t> only);

/// @brief A tensor of a rank's file: one array of a parameter in one interval.
struct PlannedTensor {
    std::size_t array = 0;     ///< index into the arrays of the parameter's type
    std::size_t parameter = 0; ///< index into `Manifest::parameters`
    ManifestInterval interval;
    std::uint64_t bytes = 0;
};

/// @brief Returns the tensors that one file holds, in the order of their data.
[[nodiscard]] std::vector<PlannedTensor> plan_file(Manifest const& manifest, std::uint64_t file);

/// @brief Returns the entry of a planned tensor in its file.
[[nodiscard]] TensorEntry entry_of(Manifest const& manifest, PlannedTensor const& tensor);

/// @brief Adds arrays of the caller, each with the rows that this rank gives.
/// @param hash gets what must be equal on every rank
/// @return why one of them cannot be saved; empty if all can be
[[nodiscard]] std::string
add_extra_arrays(Manifest& manifest, std::map<std::string, ExtraArray> const& arrays, Hash& hash);

/// @brief The beginning of the names of arrays that are not the caller's: what the encoding of
/// gradients lost, by parameter type. Each rank has as many rows, items of all trainable
/// parameters in order.
inline constexpr std::string_view errors_prefix = "zero.gradient_errors.";

/// @brief Returns the hash of what the rows of these arrays mean.
/// @param feedback name of the type of `ErrorFeedback`
[[nodiscard]] std::uint64_t errors_hash(FlatLayout const& layout, std::string_view feedback);

/// @brief Returns the description of such an array with the rows of one rank.
[[nodiscard]] ManifestExtraArray errors_array(HeldArray const& errors);

/// @brief Returns the rows of an array that a rank loads.
[[nodiscard]] Range rows_of_rank(ManifestExtraArray const& array, std::size_t rank,
                                 std::size_t world);

/// @brief Returns the entry of rows of an array of the caller.
[[nodiscard]] TensorEntry entry_of(ManifestExtraArray const& array,
                                   ManifestInterval const& interval);

/// @brief Returns the size of an item in bytes, or 0 if the dtype is unknown.
[[nodiscard]] std::uint64_t item_bytes_of(std::string const& dtype) noexcept;

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "plan_manifest.ipp"
#endif
