#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/hash.hpp"
#include "../layout/detail/partition/shape.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "../stage/training_state.hpp"
#include "detail/encode_floats.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/plan_manifest.hpp"
#include "load_options.hpp"
#include "safetensors_writer.hpp"
#include "tensor_entry.hpp"
#include "tensor_rules.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Writes the weights into safetensors files that any program reads: rank 0 writes, every
/// rank takes part. For inference, not to resume. Collective, between two steps; waits.
///
/// Memory: one parameter at a time, as floats; a transposed one twice, with all its tiles.
/// @param file path of the model in one file. It must not exist, and appears when it is complete;
/// the same holds for several files and their index. Checksums of a file are in the file
/// "NAME.checksums" beside it, which other programs do not need
/// @throws CheckpointError on every rank, after which no file of the model is left; InvalidArgument
/// for a rule that joins or cuts tensors
template <class Stage>
void save_parameters(Stage& stage, std::filesystem::path const& file,
                     ExportOptions const& options) {
    auto const access = detail::access_to(stage);
    access.require_idle("save_parameters()", detail::StateUse::read_all);
    std::vector<DType> dtypes;
    std::vector<std::size_t> order;
    std::vector<detail::ExportedTensor> exported; // by parameter
    std::optional<detail::ModelWriter> writer;    // on rank 0
    detail::require_own_path(access, file);
    detail::require_same_options(access, "save_parameters()",
                                 {{"dtype", Hash().add(options.dtype).value()}});
    // Elements between two comparisons of outcomes; 0: each parameter may be the last of its file.
    auto const elements_of_rank =
        detail::on_every_rank(access, "create the file of parameters", [&] {
            detail::require_number(options.dtype);
            auto const arrays = access.arrays(); // those of the parameters come first, by type
            for (auto const& spec : access.layout().parameters()) {
                dtypes.push_back(detail::exported_dtype(options.dtype, spec.trainable,
                                                        arrays[spec.type].form.dtype));
                exported.push_back(
                    detail::exported_tensor(options.rules, detail::stored_name(spec)));
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
                    tensor.name = exported[parameter].name;
                    tensor.dtype = detail::dtype_text(dtypes[parameter]);
                    auto const shape = detail::stored_shape(spec);
                    tensor.shape.assign(shape.begin(), shape.end());
                    exported[parameter].transpose(tensor);
                    tensors.push_back(std::move(tensor));
                }
                writer.emplace(file, std::move(tensors), options.max_file_bytes);
            }
            return std::uint64_t{options.max_file_bytes == 0 ? 1U << 20U : 0U};
        });
    TrainingState state(stage);
    std::vector<float> whole;   // of a transposed parameter, tile after tile
    std::exception_ptr failure; // of rank 0
    std::uint64_t compared = 0; // elements since the outcomes were compared
    for (std::size_t const parameter : order) {
        std::vector<float> values = state.full_fp32_parameter(parameter);
        compared += values.size();
        auto const write = [&] {
            auto const& spec = access.layout().parameter(parameter);
            if (exported[parameter].is_transposed) {
                whole.insert(whole.end(), values.begin(), values.end());
                values.clear();
                auto const shape = detail::stored_shape(spec);
                if (whole.size() == detail::product_of(shape)) {
                    values = detail::transposed(std::exchange(whole, {}), shape);
                }
            }
            detail::append_floats(*writer, dtypes[parameter], {values.data(), values.size()});
        };
        if (writer && !failure) {
            try {
                write();
            } catch (...) {
                failure = std::current_exception();
            }
        }
        if (compared < elements_of_rank[0] && parameter != order.back()) {
            continue;
        }
        compared = 0;
        auto const full = detail::on_every_rank(access, "write a parameter", [&] {
            if (failure) {
                std::rethrow_exception(failure);
            }
            return std::uint64_t{writer && writer->is_file_full() ? 1U : 0U};
        });
        if (full[0] != 0) {
            detail::on_files(
                access, "complete a file of parameters",
                [&](detail::OnCaller) {
                    if (writer) {
                        writer->finish_file();
                    }
                    return std::uint64_t{0};
                },
                options.file_time_out);
        }
    }
    detail::on_files(
        access, "complete the file of parameters",
        [&](detail::OnCaller) {
            if (writer) {
                writer->finish();
            }
            return std::uint64_t{0};
        },
        options.file_time_out);
}

/// @brief The same for one file, with the names of the parameters.
/// @param dtype as `ExportOptions::dtype`, @param file_time_out as there
template <class Stage>
void save_parameters(Stage& stage, std::filesystem::path const& file, DType dtype = DType::float32,
                     std::chrono::milliseconds file_time_out = std::chrono::minutes(30)) {
    save_parameters(stage, file, ExportOptions{.dtype = dtype, .file_time_out = file_time_out});
}

} // namespace ZERO_NAMESPACE
