#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/hash.hpp"
#include "step_settings.hpp"

#include <cstdio>
#include <limits>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_steps(std::uint64_t count, char const* what) {
    constexpr std::uint64_t most = std::uint64_t{1} << 62U;
    if (count > most) {
        throw_error<InvalidArgument>(
            {"zero: the ", what, " ", count, " is larger than 2^62; it counts steps from 0."});
    }
}

ZERO_COLD_INLINE void require_running_norm(RunningNorm const& running) {
    if (!(running.mean >= 0.0 && running.mean <= std::numeric_limits<double>::max())) {
        throw_error<InvalidArgument>({"zero: the running norm ", running.mean,
                                      " is not one that steps have; give a finite one that is not "
                                      "negative."});
    }
}

ZERO_COLD_INLINE StepSettings::StepSettings(FlatLayout const& layout, std::size_t listed_groups)
    : _group_count(listed_groups) {
    for (auto const& parameter : layout.parameters()) {
        _group_count = larger(_group_count, parameter.group + 1);
    }
    _group_count = larger<std::size_t>(_group_count, 1);
    _factors.resize(_group_count, 1.0);
    _settings.resize(2 * _group_count + 2);
    _first = layout.parameters().empty() ? "" : layout.parameter(0).name.substr(0, 24);
}

ZERO_COLD_INLINE void StepSettings::set_context() {
    constexpr std::array names{"learning rates", "hyper-parameters", "loss scaler",    "step count",
                               "running norm",   "updates",          "cancelled steps"};
    std::string changes;
    for (std::size_t change = 0; change < names.size(); ++change) {
        if ((_changes >> change & 1U) != 0) {
            changes += text({changes.empty() ? " with changed " : ", ", names[change]});
        }
    }
    _context = changes.empty() && !_is_named
                   ? std::string()
                   : text({"engine ", _number, " ('", _first, "')", changes});
}

ZERO_COLD_INLINE void StepSettings::set_learning_rate_factor(std::size_t group, double factor) {
    _factors[group] = factor;
    _settings[2 * group] = Hash().add(factor).value();
    note(Change::learning_rates);
}

ZERO_COLD_INLINE void StepSettings::set_hyper_parameters(std::size_t group,
                                                         std::uint64_t options_hash) {
    _settings[2 * group + 1] = options_hash;
    note(Change::hyper_parameters);
}

ZERO_COLD_INLINE void StepSettings::set_loss_scaler(std::uint64_t state) {
    _settings[2 * _group_count] = state;
    note(Change::loss_scaler);
}

ZERO_COLD_INLINE void StepSettings::set_step_count(std::uint64_t count) {
    _settings[2 * _group_count + 1] = Hash().add(count).value();
    _updates = _number;
    note(Change::step_count);
}

ZERO_COLD_INLINE void StepSettings::set_running_norm(RunningNorm const& running) {
    _settings.resize(2 * _group_count + 3);
    _settings.back() =
        Hash().add(running.mean).add(running.steps).add(std::uint64_t{running.too_large}).value();
    note(Change::running_norm);
}

ZERO_COLD_INLINE void StepSettings::set_updates(std::span<std::uint64_t const> updates) {
    Hash hash;
    hash.add(_number);
    for (std::uint64_t const count : updates) {
        hash.add(count);
    }
    _updates = hash.value();
    note(Change::updates);
}

ZERO_COLD_INLINE void StepSettings::throw_infinite_rate(double learning_rate, double factor,
                                                        std::size_t group, int rank) {
    throw_error<InvalidArgument>({"zero: the learning rate ", learning_rate,
                                  " times the learning_rate_factor ", factor, " of group ", group,
                                  " is not finite as a float (rank ", rank,
                                  "); give a smaller rate or factor."});
}

ZERO_INLINE void StepSettings::require_finite_rates(double learning_rate, int rank) const {
    for (std::size_t group = 0; group < _group_count; ++group) {
        if (!is_non_negative_float(learning_rate * _factors[group])) {
            throw_infinite_rate(learning_rate, _factors[group], group, rank);
        }
    }
}

ZERO_COLD_INLINE std::uint64_t StepSettings::hash(std::uint64_t begun,
                                                  double learning_rate) const noexcept {
    Hash all;
    all.add(begun).add(learning_rate);
    for (std::uint64_t const setting : _settings) {
        all.add(setting);
    }
    return all.add(_updates).value();
}

ZERO_COLD_INLINE std::uint64_t
StepSettings::hash_over_model(std::uint64_t begun, double learning_rate,
                              std::optional<std::int64_t> weight) const noexcept {
    Hash all;
    all.add(_number_over_model).add(begun).add(learning_rate);
    all.add(weight.has_value()).add(weight.value_or(0));
    for (std::uint64_t const setting : _settings) {
        all.add(setting);
    }
    return all.value();
}

ZERO_INLINE char const* RateText::of(double learning_rate, std::size_t micro_steps) noexcept {
    if (learning_rate != _rate || micro_steps != _micro_steps) { // 17 digits distinguish all rates
        int const length = std::snprintf(_text.data(), _text.size(), "%s%srate %.17g", _between,
                                         _kind.c_str(), learning_rate);
        auto at = static_cast<std::size_t>(length);
        if (micro_steps != 0) {
            at += static_cast<std::size_t>(std::snprintf(_text.data() + at, _text.size() - at,
                                                         " after %zu micro-step%s", micro_steps,
                                                         micro_steps == 1 ? "" : "s"));
        }
        std::snprintf(_text.data() + at, _text.size() - at, ", steps and settings as hash");
        _rate = learning_rate;
        _micro_steps = micro_steps;
    }
    return _text.data();
}

} // namespace ZERO_NAMESPACE::detail
