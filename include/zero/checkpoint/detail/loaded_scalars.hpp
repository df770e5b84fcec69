#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../stage/detail/state_access.hpp"
#include "../manifest.hpp"
#include "plan_manifest.hpp"
#include "scalar_fields.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The scalars of a checkpoint in the types of an engine: read and checked first, set after
/// the arrays were loaded.
template <class Config>
class LoadedScalars {
public:
    using Scaler = typename Config::LossScaler;
    using Optimizer = typename Config::Optimizer;

    /// @param lacks_states by parameter: its states are not loaded
    /// @throws CheckpointError if one is missing; InvalidArgument if a policy rejects its value
    LoadedScalars(StateAccess<Config> const& access, Manifest const& manifest,
                  std::string const& source, bool with_settings,
                  std::vector<char> const& lacks_states) {
        FieldReader const fields{&manifest.scalars, "", source};
        fields("step_count", _step_count);
        _updates = access.updates();
        for (std::size_t parameter = 0; parameter < _updates.size(); ++parameter) {
            auto const& spec = access.layout().parameter(parameter);
            if (!spec.trainable) {
                _updates[parameter] = _step_count; // it has none
            } else if (lacks_states[parameter] == 0) {
                _updates[parameter] = stored_updates(manifest.scalars, spec, _step_count);
            }
        }
        fields("skipped_in_a_row", _skipped_in_a_row);
        _scaler = access.control().settled().scaler;
        for_each_tracker<Scaler>(_scaler, FieldReader{&manifest.scalars, "loss_scaler.", source});
        access.control().require_valid(_scaler);
        for (std::size_t group = 0; with_settings && group < access.control().group_count();
             ++group) {
            FieldReader const own{&manifest.scalars, text({"groups.", group, "."}), source};
            Group loaded{1.0, access.control().hyper_parameters(group)};
            own("learning_rate_factor", loaded.learning_rate_factor);
            access.protocol().require_rate(loaded.learning_rate_factor, "learning rate factor");
            for_each_option<Optimizer>(loaded.options, own);
            Optimizer::validate(loaded.options);
            _groups.push_back(loaded);
        }
    }

    void set(StateAccess<Config> const& access) const {
        access.control().set_step_count(_step_count);
        access.set_updates(as_span(_updates));
        access.control().set_skipped_in_a_row(_skipped_in_a_row);
        access.control().set_scaler_state(_scaler);
        for (std::size_t group = 0; group < _groups.size(); ++group) {
            access.control().set_learning_rate(group, _groups[group].learning_rate_factor);
            access.control().set_hyper_parameters(group, _groups[group].options);
        }
    }

private:
    struct Group {
        double learning_rate_factor;
        typename Optimizer::Options options;
    };

    std::uint64_t _step_count = 0;
    std::vector<std::uint64_t> _updates; ///< by parameter
    std::uint64_t _skipped_in_a_row = 0;
    typename Scaler::State _scaler{};
    std::vector<Group> _groups;
};

} // namespace ZERO_NAMESPACE::detail
