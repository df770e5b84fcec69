#pragma once

#include "../../core/detail/namespace.hpp"
#include "file_job.hpp"
#include "staging_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Writes a file from the memory of an engine, in place where the host can read it.
/// @return the checksum of the file's index
template <class Access>
std::uint64_t write_held(Access const& access, FileJob job) {
    auto const buffer = staging_buffer<typename Access::Backend>();
    auto const copy = [&](void* to, void const* from, std::size_t bytes) {
        access.copy(to, from, bytes);
    };
    return write_file(std::move(job), {buffer.data(), copy});
}

/// @brief Returns the default name of a checkpoint: "step-" and eight digits.
[[nodiscard]] inline std::string checkpoint_name(std::uint64_t step_count) {
    std::string number = std::to_string(step_count);
    number.insert(0, number.size() < 8 ? 8 - number.size() : 0, '0');
    return "step-" + number;
}

} // namespace ZERO_NAMESPACE::detail
