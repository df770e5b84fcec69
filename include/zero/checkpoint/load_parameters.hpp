#pragma once

#include "../core/convert.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "../stage/parameter.hpp"
#include "checkpoint_reader.hpp"
#include "detail/load_state.hpp"
#include "load_options.hpp"
#include "manifest.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Loads parameters from safetensors files of any program, whose tensors have the names of
/// the parameters unless `LoadOptions::rules` say otherwise. Master weights get the same values;
/// optimizer states and the step count are kept. Collective, between two steps, with no handle
/// held; waits.
///
/// Every rank reads the elements that it holds, and the headers of all files. Files without
/// checksums are not verified. Memory: 2^16 elements; of a transposed parameter 2^20, and at least
/// 16 rows.
/// @param file one file, the index of several, or their folder, as for `CheckpointReader::of_file`
/// @throws CheckpointError as `load_checkpoint`: one that lists all parameters that are missing and
/// all tensors that are left over; InvalidArgument for a rule that fits no tensors, for
/// `LoadOptions::name`, and if ranks differ in an option. The engine is unchanged
template <class Stage>
LoadReport load_parameters(Stage& stage, std::filesystem::path const& file,
                           LoadOptions options = {}) {
    auto const access = detail::access_to(stage);
    access.wait_to_write("load_parameters()");
    detail::require_same_load(access, "load_parameters()", options);
    options.scope = LoadScope::parameters;
    LoadReport report;
    report.name = file.string();
    detail::load_state(
        access, report.name,
        [&](detail::KeepIntervals) {
            if (!options.name.empty()) {
                detail::throw_error<InvalidArgument>(
                    {"zero: load_parameters() takes no LoadOptions::name, because it loads the "
                     "file or folder that it is given; add the name to the path, or use "
                     "load_checkpoint() (rank ",
                     access.rank(), ")."});
            }
            return CheckpointReader::of_file(file, options.rules);
        },
        options, report);
    return report;
}

/// @brief Returns a `Parameter::initialise` that reads the values from safetensors files or a
/// checkpoint by interval. It needs memory for 2^14 elements; of a transposed parameter for 2^20,
/// and at least 16 rows.
///
/// If every rank can read the file, set `Parameter::is_deterministic`: then each rank reads its own
/// slices. Otherwise rank 0 reads everything and sends it. The file is opened once for all
/// parameters that share the reader, which ranks in one process may share as well.
/// @param file reader from `CheckpointReader::of_file`, with rules if names differ, or of a
/// checkpoint, whose rounded parameters it reads
/// @param name name of the parameter
/// @throws CheckpointError from the constructor of the engine if the file has no such parameter
template <class T>
[[nodiscard]] Initialiser<T> initialise_from(std::shared_ptr<CheckpointReader> file,
                                             std::string name) {
    return
        [file = std::move(file), name = std::move(name)](std::size_t begin, std::span<T> values) {
            std::size_t most = std::size_t{1} << 14U;
            if (auto const parameter = file->find(name)) {
                most = detail::larger(most, file->preferred_elements(*parameter));
            }
            std::vector<float> numbers(values.size() < most ? values.size() : most);
            for (std::size_t first = 0; first < values.size(); first += most) {
                std::size_t const rest = values.size() - first;
                std::size_t const count = rest < most ? rest : most;
                file->read_parameter(name, begin + first, {numbers.data(), count});
                for (std::size_t i = 0; i < count; ++i) {
                    values[first + i] = from_float<T>(numbers[i]);
                }
            }
        };
}

} // namespace ZERO_NAMESPACE
