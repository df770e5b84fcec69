#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/type_name.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../stage/detail/decision/step_settings.hpp"
#include "../../stage/detail/state/state_access.hpp"
#include "../checkpoint_error.hpp"
#include "../checkpoint_reader.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"
#include "plan_manifest.hpp"
#include "scalar_fields.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The group of a checkpoint from which each group of an engine gets its settings: the one
/// that held the parameters. The number of a group is only its position in a list and may change.
struct GroupSources {
    /// @param own settings of the engine's groups, as a checkpoint of it would name them
    GroupSources(FlatLayout const& layout, CheckpointReader const& checkpoint,
                 ManifestScalars const& own, std::size_t groups);

    /// @throws CheckpointError that lists the differences
    [[noreturn]] void refuse(std::string const& source) const;

    std::vector<std::optional<std::uint64_t>> stored; ///< by group; empty: none, or several
    std::vector<std::string> differences; ///< groups that were merged or divided and differ
    std::vector<std::string> kept;        ///< groups of frozen parameters alone that were merged or
                                   ///< divided and differ: they keep the settings of the engine
    std::vector<std::string> replaced; ///< groups whose settings are not those of the engine
};

/// @brief The scalars of a checkpoint in the types of an engine: read and checked first, set after
/// the arrays were loaded.
template <class Config>
class LoadedScalars {
public:
    using Scaler = typename Config::LossScaler;
    using Optimizer = typename Config::Optimizer;

    /// @brief The settings of groups follow the parameters: each group of the engine gets those of
    /// the group in which the checkpoint has its parameters, whatever their numbers are.
    /// @param lacks_states by parameter: its states are not loaded
    /// @throws CheckpointError if one is missing, or lists groups that were merged or divided,
    /// unless `options` accept it; InvalidArgument if a policy rejects its value
    LoadedScalars(StateAccess<Config> const& access, CheckpointReader const& checkpoint,
                  std::string const& source, bool with_settings, LoadOptions const& options,
                  std::vector<char> const& lacks_states) {
        ManifestScalars const& scalars = checkpoint.manifest().scalars;
        FieldReader const fields{&scalars, "", source};
        fields("step_count", _step_count);
        fields("skipped_in_a_row", _skipped_in_a_row);
        require_steps(_step_count, "step count of the checkpoint");
        require_steps(_skipped_in_a_row, "skipped_in_a_row of the checkpoint");
        _updates = access.updates();
        for (std::size_t parameter = 0; parameter < _updates.size(); ++parameter) {
            auto const& spec = access.layout().parameter(parameter);
            if (!spec.trainable) {
                _updates[parameter] = _step_count; // it has none
            } else if (lacks_states[parameter] == 0) {
                _updates[parameter] = stored_updates(scalars, spec, _step_count);
                require_steps(_updates[parameter], "number of updates of a parameter");
            }
        }
        if (access.control().limits_norm()) {
            read_running_norm(fields, access.options().skip_above_norm.factor.has_value());
        }
        compare_tree(access.options().reduction, scalars, source, options.may_differ);
        read_scaler(access, FieldReader{&scalars, "loss_scaler.", source}, options.may_differ);
        _groups.resize(access.control().group_count());
        if (!with_settings) {
            return;
        }
        ManifestScalars own; // as a checkpoint of this engine would have them
        for (std::size_t group = 0; group < _groups.size(); ++group) {
            write_group<Optimizer>(access.control(), group, own);
        }
        GroupSources const sources(access.layout(), checkpoint, own, _groups.size());
        if (!sources.differences.empty() && !options.may_differ && !options.may_regroup) {
            sources.refuse(source);
        }
        differences.insert(differences.end(), sources.differences.begin(),
                           sources.differences.end());
        differences.insert(differences.end(), sources.kept.begin(), sources.kept.end());
        replaced_settings = sources.replaced;
        for (std::size_t group = 0; group < _groups.size(); ++group) {
            if (!sources.stored[group]) {
                continue; // it keeps its own
            }
            FieldReader const from{&scalars, group_prefix(*sources.stored[group]), source};
            Group loaded{1.0, access.control().hyper_parameters(group)};
            from("learning_rate_factor", loaded.learning_rate_factor);
            access.protocol().require_rate(loaded.learning_rate_factor, "learning rate factor");
            for_each_option<Optimizer>(loaded.options, from);
            Optimizer::validate(loaded.options);
            _groups[group] = loaded;
        }
    }

    void set(StateAccess<Config> const& access) const {
        access.set_step_count(_step_count);
        access.set_updates(as_span(_updates));
        access.control().set_skipped_in_a_row(_skipped_in_a_row);
        access.control().set_scaler_state(_scaler);
        if (_running) {
            access.control().set_running_norm(*_running);
        }
        for (std::size_t group = 0; group < _groups.size(); ++group) {
            if (_groups[group]) {
                access.control().set_learning_rate(group, _groups[group]->learning_rate_factor);
                access.control().set_hyper_parameters(group, _groups[group]->options);
            }
        }
    }

    std::vector<std::string> differences;       ///< of the loss scaler and groups, as in
                                                ///< `LoadReport`
    std::vector<std::string> replaced_settings; ///< as in `LoadReport`

private:
    /// The limit is an option of the program, so a checkpoint of one without it is accepted.
    void read_running_norm(FieldReader const& fields, bool has_factor) {
        if (!fields.scalars->numbers.contains("running_norm")) {
            if (has_factor) {
                differences.emplace_back("the running norm of skip_above_norm stays that of the "
                                         "engine, because the checkpoint has none");
            }
            return;
        }
        RunningNorm running;
        fields("running_norm", running.mean);
        fields("running_norm_steps", running.steps);
        fields("too_large", running.too_large);
        require_running_norm(running);
        _running = running;
    }

    /// A run whose micro-batches were added in a tree goes on with the same tree: another one has
    /// other bits.
    void compare_tree(GradientReductionOptions const& own, ManifestScalars const& scalars,
                      std::string const& source, bool may_differ) {
        auto const stored = scalars.counts.find("micro_batches");
        if (stored == scalars.counts.end()) {
            return; // it was added in rank order, and promised less
        }
        auto const group = scalars.counts.find("micro_batch_group");
        std::uint64_t const stored_group = group == scalars.counts.end() ? 1 : group->second;
        if (stored->second == own.micro_batches && stored_group == own.micro_batch_group) {
            return;
        }
        std::string const difference =
            text({"gradients were added in a tree of ", stored->second,
                  " micro-batches in groups of ", stored_group, ", and the engine adds ",
                  Config::adds_in_tree
                      ? text({own.micro_batches, " in groups of ", own.micro_batch_group})
                      : std::string("in rank order")});
        if (!may_differ) {
            throw_error<CheckpointError>(
                {"zero: in ", source, ' ', difference,
                 ", so the run would go on with other bits; set reduction.micro_batches and "
                 "micro_batch_group of TreeReduction as they were, or "
                 "LoadOptions::may_differ."});
        }
        differences.push_back(difference);
    }

    /// @param may_differ another loss scaler keeps its state in the engine
    void read_scaler(StateAccess<Config> const& access, FieldReader const& fields,
                     bool may_differ) {
        auto const own = access.control().settled().scaler;
        try {
            _scaler = own;
            for_each_tracker<Scaler>(_scaler, fields);
            access.control().require_valid(_scaler);
        } catch (Error const& error) {
            constexpr std::string_view prefix = "zero: ";
            std::string_view cause = error.what();
            cause.remove_prefix(cause.starts_with(prefix) ? prefix.size() : 0);
            if (!may_differ) {
                throw_error<CheckpointError>(
                    {"zero: the loss scaler ", type_name<Scaler>(), " cannot continue that of ",
                     fields.source, ": ", cause,
                     " LoadOptions::may_differ lets it keep its state in the engine."});
            }
            _scaler = own;
            differences.push_back(text({"the loss scaler ", type_name<Scaler>(),
                                        " keeps its state in the engine, because the checkpoint "
                                        "has that of another one"}));
        }
    }

    struct Group {
        double learning_rate_factor;
        typename Optimizer::Options options;
    };

    std::uint64_t _step_count = 0;
    std::vector<std::uint64_t> _updates; ///< by parameter
    std::uint64_t _skipped_in_a_row = 0;
    std::optional<RunningNorm> _running; ///< empty: the engine keeps its own
    typename Scaler::State _scaler{};
    std::vector<std::optional<Group>> _groups; ///< empty: the engine keeps its own
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "group_sources.ipp"
#endif
