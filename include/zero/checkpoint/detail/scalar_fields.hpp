#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../tier/detail/checksum.hpp"
#include "../checkpoint_error.hpp"
#include "../manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Adds fields to the scalars of a manifest, under names that begin with a prefix.
/// `SavePlan` names those of an engine, `LoadedScalars` reads them back.
struct FieldWriter {
    ManifestScalars* scalars;
    std::string prefix;

    template <class T>
    void operator()(std::string_view name, T const& value) const {
        std::string const key = prefix + std::string(name);
        if constexpr (std::is_floating_point_v<T>) {
            auto const number = static_cast<double>(value);
            if (number - number != 0.0) {
                throw_error<CheckpointError>({"zero: '", key,
                                              "' is not finite and cannot be "
                                              "saved; give a finite value."});
            }
            scalars->numbers[key] = number;
        } else {
            scalars->counts[key] = static_cast<std::uint64_t>(value);
        }
    }
};

/// @brief Reads fields back. @throws CheckpointError naming the field that is missing
struct FieldReader {
    ManifestScalars const* scalars;
    std::string prefix;
    std::string source; ///< the checkpoint, for messages

    template <class Map>
    [[nodiscard]] auto const& find(Map const& map, std::string const& key) const {
        auto const found = map.find(key);
        if (found == map.end()) {
            throw_error<CheckpointError>({"zero: ", source, " has no scalar '", key,
                                          "'; it was saved with another policy. Load "
                                          "LoadScope::weights, or use the policies of then."});
        }
        return found->second;
    }

    template <class T>
    void operator()(std::string_view name, T& value) const {
        std::string const key = prefix + std::string(name);
        if constexpr (std::is_floating_point_v<T>) {
            value = static_cast<T>(find(scalars->numbers, key));
        } else {
            value = static_cast<T>(find(scalars->counts, key));
        }
    }
};

/// @brief Saves a struct without named fields as its bytes.
template <class T>
void write_bytes(FieldWriter const& fields, T const& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    fields.scalars->texts[fields.prefix + "bytes"] =
        to_hex(std::as_bytes(std::span<T const, 1>(&value, 1)));
}

/// @brief Reads such a struct back. @throws CheckpointError for another number of bytes
template <class T>
void read_bytes(FieldReader const& fields, T& value) {
    std::string const key = fields.prefix + "bytes";
    std::byte bytes[sizeof(T)];
    if (!from_hex(fields.find(fields.scalars->texts, key), bytes)) {
        throw_error<CheckpointError>({"zero: the scalar '", key, "' of ", fields.source, " is not ",
                                      sizeof(T), " bytes in hexadecimal."});
    }
    std::memcpy(&value, bytes, sizeof(T));
}

/// @brief Saves or reads the trackers of a loss scaler: by name if it has `for_each_tracker`,
/// otherwise as bytes.
template <class Scaler, class State, class Fields>
void for_each_tracker(State& state, Fields const& fields) {
    if constexpr (requires { Scaler::for_each_tracker(state, fields); }) {
        Scaler::for_each_tracker(state, fields);
    } else if constexpr (std::is_const_v<State>) {
        write_bytes(fields, state);
    } else {
        read_bytes(fields, state);
    }
}

/// @brief Saves or reads the options of an optimizer: by name if it has `for_each_option`,
/// otherwise as bytes. Options that are neither named nor trivially copyable are not saved.
template <class Optimizer, class Options, class Fields>
void for_each_option(Options& options, Fields const& fields) {
    if constexpr (requires { Optimizer::for_each_option(options, fields); }) {
        Optimizer::for_each_option(options, fields);
    } else if constexpr (std::is_trivially_copyable_v<Options>) {
        if constexpr (std::is_const_v<Options>) {
            write_bytes(fields, options);
        } else {
            read_bytes(fields, options);
        }
    }
}

/// @brief Returns the beginning of the names of a group's settings.
[[nodiscard]] inline std::string group_prefix(std::uint64_t group) {
    return text({"groups.", group, "."});
}

/// @brief Adds the settings of a group: its learning rate factor and hyper-parameters.
template <class Optimizer, class Control>
void write_group(Control const& control, std::size_t group, ManifestScalars& scalars) {
    FieldWriter const fields{&scalars, group_prefix(group)};
    fields("learning_rate_factor", control.learning_rate_factor(group));
    auto const options = control.hyper_parameters(group);
    for_each_option<Optimizer>(options, fields);
}

} // namespace ZERO_NAMESPACE::detail
