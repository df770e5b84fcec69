#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "../stage/training_state.hpp"
#include "detail/encode_floats.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/plan_manifest.hpp"
#include "safetensors_writer.hpp"
#include "tensor_entry.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Writes the weights into one safetensors file that any program reads: rank 0 writes, every
/// rank takes part. For inference, not to resume. Collective, between two steps; waits.
///
/// Memory: one parameter at a time, as floats.
/// @param file must not exist, and appears when it is complete. Its checksums are in the file
/// "NAME.checksums" beside it, which other programs do not need
/// @param dtype type of the tensors: float32 keeps the master weights, bfloat16 and float16 round
/// them. With float32, frozen parameters of 16 bits keep their type and follow the others
/// @param file_time_out as in `SaveOptions`, for the wait until the file is durable
/// @throws CheckpointError on every rank
template <class Stage>
void save_parameters(Stage& stage, std::filesystem::path const& file, DType dtype = DType::float32,
                     std::chrono::milliseconds file_time_out = std::chrono::minutes(30)) {
    auto const access = detail::access_to(stage);
    access.require_idle("save_parameters()", detail::StateUse::read_all);
    std::vector<DType> dtypes;
    std::vector<std::size_t> order;
    std::optional<SafetensorsWriter> writer; // on rank 0
    detail::require_own_path(access, file);
    detail::on_every_rank(access, "create the file of parameters", [&] {
        detail::require_number(dtype);
        auto const arrays = access.arrays(); // those of the parameters come first, by type
        for (auto const& spec : access.layout().parameters()) {
            dtypes.push_back(
                detail::exported_dtype(dtype, spec.trainable, arrays[spec.type].form.dtype));
        }
        order = detail::aligned_order(dtypes);
        if (access.rank() == 0) {
            std::vector<TensorEntry> tensors;
            for (std::size_t const parameter : order) {
                auto const& spec = access.layout().parameter(parameter);
                if (spec.tile.is_later()) {
                    continue; // its values follow those of the first tile
                }
                TensorEntry tensor;
                tensor.name = detail::stored_name(spec);
                tensor.dtype = detail::dtype_text(dtypes[parameter]);
                for (std::size_t const size : detail::stored_shape(spec)) {
                    tensor.shape.push_back(size);
                }
                tensors.push_back(std::move(tensor));
            }
            writer.emplace(file, std::move(tensors), std::map<std::string, std::string>{},
                           ChecksumPlace::beside);
        }
        return std::uint64_t{0};
    });
    TrainingState state(stage);
    for (std::size_t const parameter : order) {
        std::vector<float> const values = state.full_fp32_parameter(parameter);
        detail::on_every_rank(access, "write a parameter", [&] {
            if (writer) {
                detail::append_floats(*writer, dtypes[parameter], {values.data(), values.size()});
            }
            return std::uint64_t{0};
        });
    }
    detail::on_files(
        access, "complete the file of parameters",
        [&](detail::OnCaller) { return writer ? writer->finish() : std::uint64_t{0}; },
        file_time_out);
}

} // namespace ZERO_NAMESPACE
