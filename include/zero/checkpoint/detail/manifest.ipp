#pragma once

#include "../manifest.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "read_manifest.hpp"
#include "write_manifest.hpp"

#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::uint64_t ManifestParameter::elements() const noexcept {
    std::uint64_t product = 1;
    for (std::uint64_t const size : shape) {
        if (size == 0) {
            return 0;
        }
        if (product > std::numeric_limits<std::uint64_t>::max() / size) {
            return std::numeric_limits<std::uint64_t>::max();
        }
        product *= size;
    }
    return product;
}

ZERO_COLD_INLINE std::string tensor_name(ManifestArray const& array,
                                         ManifestParameter const& parameter,
                                         ManifestInterval const& interval) {
    std::string name = array.name + "/" + parameter.name;
    if (interval.begin != 0 || interval.end != parameter.elements()) {
        name += detail::text({"[", interval.begin, ":", interval.end, "]"});
    }
    return name;
}

ZERO_COLD_INLINE void Manifest::require_valid_extras() const {
    for (auto const& [name, content] : extras) {
        try {
            (void)nlohmann::json(name).dump();
            (void)nlohmann::json(content).dump();
        } catch (nlohmann::json::exception const& error) {
            using Handler = nlohmann::json::error_handler_t;
            detail::throw_error<CheckpointError>(
                {"zero: the extra ", nlohmann::json(name).dump(-1, ' ', false, Handler::replace),
                 " is not text in UTF-8, and only texts are saved; encode bytes, for instance as "
                 "hexadecimal digits. ",
                 error.what(), "."});
        }
    }
}

ZERO_COLD_INLINE std::string Manifest::to_json() const {
    std::string all;
    detail::write_json(*this, [&](std::string_view part) { all += part; });
    return all;
}

} // namespace ZERO_NAMESPACE
