#pragma once

#include "../comm/grouped_communicator.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/dtype.hpp"
#include "../core/memory_resource.hpp"
#include "../core/type_name.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/stage_table.hpp"
#include "../policy/master_weights_policy.hpp"
#include "../policy/optimizer.hpp"
#include "detail/common/engine_config.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Describes the types of one kind of parameters, for `zero::describe`.
/// @tparam Types a `TypeSet`
template <class Types>
[[gnu::cold]] std::string describe_types() {
    std::string const master = Types::master_form == MasterForm::split ? "float32 in parts"
                               : Types::master_form == MasterForm::stochastic
                                   ? "none, rounded stochastically"
                               : Types::has_master ? name_of(dtype_of<typename Types::Master>())
                                                   : "none";
    return text(
        {name_of(dtype_of<typename Types::Parameter>()), " parameters (gradients ",
         name_of(dtype_of<typename Types::Gradient>()), ", sent as ",
         has_gradient_codec<Types> ? "codes" : name_of(dtype_of<typename Types::Communication>()),
         ", accumulated in ", name_of(dtype_of<typename Types::Accumulation>()),
         ", master weights ", master, ")"});
}

/// @brief Returns ", master weights and optimizer state in FileTier", or an empty text.
template <class Config>
[[gnu::cold]] std::string describe_offload() {
    std::string kinds;
    if constexpr (Config::Offload::is_any) {
        for (BufferKind const kind : Config::Offload::kinds) {
            kinds += text({kinds.empty() ? ", " : " and ", name_of(kind)});
        }
        kinds += " in " + type_name<typename Config::Offload::Tier>();
    } else if constexpr (has_states_on_host<Config>) {
        for (BufferKind const kind : Config::Offload::kinds) {
            kinds += text({kinds.empty() ? ", " : " and ", name_of(kind)});
        }
        kinds += updates_on_host<Config> ? " on the host, which updates" : " on the host";
    }
    if constexpr (delays_update<Config>) {
        kinds += ", each during the next step";
    }
    return kinds;
}

/// @brief Returns ", weights sent as Int8Blocks, frozen parameters kept as Int4Blocks, gradients
/// sent as Int4Blocks, sums of replicas sent as Int8Blocks", or less.
template <class Config>
[[gnu::cold]] std::string describe_codec() {
    std::string codec;
    if constexpr (codes_weights<Config>) {
        codec =
            ", weights sent as " + type_name<typename Config::template TypesAt<0>::WeightCodec>();
    }
    if constexpr (codes_frozen<Config>) {
        codec += ", frozen parameters kept as "
                 + type_name<typename Config::template TypesAt<0>::FrozenCodec>();
    }
    if constexpr (codes_gradients<Config>) {
        codec += ", gradients sent as "
                 + type_name<typename Config::template TypesAt<0>::GradientCodec>();
    }
    if constexpr (keeps_errors<Config>) {
        codec += " with " + type_name<typename Config::Feedback>();
    }
    if constexpr (codes_replicas<Config>) {
        codec += ", sums of replicas sent as "
                 + type_name<typename Config::template TypesAt<0>::ReplicaCodec>();
    }
    return codec;
}

/// @brief Describes an engine, for `zero::describe`.
/// @param sharding names of partitioner and bucketer, each followed by ", "; empty for an engine
/// that does not know them
template <class Config>
[[gnu::cold]] std::string describe_engine(int stage, std::string const& sharding,
                                          ReductionSchedule schedule) {
    std::string types;
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        ((types += text({describe_types<typename Config::template TypesAt<Type>>(), ", "})), ...);
    }(std::make_index_sequence<Config::types>());
    return text({"ZeroStage<",
                 stage,
                 ">: ",
                 types,
                 sharding,
                 type_name<typename Config::Communicator>(),
                 ", ",
                 type_name<typename Config::LossScaler>(),
                 ", ",
                 type_name<typename Config::Optimizer>(),
                 " with ",
                 type_name<typename Config::OptimizerState>(),
                 Config::rounds_states ? " (rounded stochastically)" : "",
                 describe_offload<Config>(),
                 describe_codec<Config>(),
                 ", reduced ",
                 Config::adds_in_tree ? "in a tree of micro-batches, " : "",
                 "by ",
                 name_of(schedule),
                 (schedule == default_schedule(stage) ? " (the stage's default)" : "")});
}

/// @brief Returns ", one micro-step per step" for an engine with that restriction; otherwise an
/// empty text.
template <class Engine>
[[gnu::cold]] std::string describe_micro_steps(Engine const& engine) {
    return engine.has_one_micro_step() ? ", one micro-step per step" : "";
}

/// @brief Returns ", 3 of 12 units kept until the update", or why none is.
/// @param most `GatherOptions::keep_until_update`
[[gnu::cold]] inline std::string describe_kept(FlatLayout const& layout, std::size_t most) {
    std::size_t kept = 0;
    std::size_t first = layout.units(); // the first unit that is not kept
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        bool is_kept = true;
        for (std::size_t const bucket : layout.unit_buckets(unit)) {
            is_kept = is_kept && layout.bucket(bucket).is_persistent;
        }
        kept += is_kept ? 1 : 0;
        first = is_kept ? first : smaller(first, unit);
    }
    return kept == 0 ? text({", no unit kept until the update, because keep_until_update is ", most,
                             " elements and ", layout.unit_text(first), " has more"})
                     : text({", ", kept, " of ", layout.units(), " units kept until the update"});
}

/// @brief Returns ", gathers on a communicator of their own" for an engine that has one, and which
/// units it keeps by `keep_until_update`; otherwise an empty text.
template <class Engine>
[[gnu::cold]] std::string describe_gathers(Engine const& engine) {
    auto const& gather = engine.options().gather;
    if (engine.stage_number() != 3 || engine.layout().world() == 1) {
        return {};
    }
    return (gather.own_communicator ? ", gathers on a communicator of their own" : "")
           + (gather.keep_until_update == 0
                  ? std::string()
                  : describe_kept(engine.layout(), gather.keep_until_update));
}

/// @brief Returns ", steps skipped above 3 times the running norm of 128" for an engine with
/// `skip_above_norm`; otherwise an empty text.
template <class Engine>
[[gnu::cold]] std::string describe_norm_limit(Engine const& engine) {
    auto const& norm = engine.options().skip_above_norm;
    std::string limit;
    if (norm.limit) {
        limit = text({", steps skipped above the norm ", *norm.limit});
    }
    if (norm.factor) {
        limit += text({limit.empty() ? ", steps skipped above " : " or ", *norm.factor,
                       " times the running norm of ", norm.window});
    }
    return limit;
}

/// @brief Returns the sizes of the parts of `Groups`: ", sharded over 8 ranks of each of 2
/// replicas", ", secondary copies on 8 ranks each", ", model rank 1 of 4, 2 data ranks"; otherwise
/// an empty text.
template <class Engine>
[[gnu::cold]] std::string describe_groups(Engine const& engine) {
    using C = typename Engine::Communicator;
    std::string groups;
    [[maybe_unused]] C& communicator = engine.communicator();
    if constexpr (GroupedCommunicator<C>) {
        groups = text({", sharded over ", communicator.shard().size(), " ranks of each of ",
                       communicator.replicas().size(), " replicas"});
    }
    if constexpr (SecondaryCommunicator<C>) {
        groups += text({", secondary copies on ", communicator.secondary().size(), " ranks each"});
    }
    if constexpr (ModelParallelCommunicator<C>) {
        auto const rank = static_cast<std::size_t>(communicator.model().rank());
        auto const size = static_cast<std::size_t>(communicator.model().size());
        std::size_t cut = size; // over which ranks the model itself is cut
        if constexpr (ExpertCommunicator<C>) {
            cut = communicator.ranks_of_expert();
            groups += text({", expert rank ", rank / cut, " of ", size / cut});
        }
        if (!ExpertCommunicator<C> || cut != 1) {
            groups += text({", model rank ", rank % cut, " of ", cut});
        }
        groups += text({", ", communicator.size(),
                        ExpertCommunicator<C> ? " ranks with the same experts" : " data ranks"});
    }
    return groups;
}

/// @brief Returns a line with the parameters that the optimizer updates as matrices, and the
/// others; empty for an optimizer without a rule for matrices.
template <class Config>
[[gnu::cold]] std::string describe_updates(FlatLayout const& layout) {
    std::string line;
    if constexpr (MatrixOptimizer<typename Config::Optimizer>) {
        constexpr std::size_t most = 8; // names of each kind
        std::size_t counts[2] = {};
        std::string names[2];
        for (ParameterSpec const& spec : layout.parameters()) {
            if (!spec.trainable || spec.elements == 0) {
                continue;
            }
            std::size_t const kind = spec.rows != 0 ? 1 : 0;
            if (++counts[kind] <= most) {
                names[kind] += text({counts[kind] == 1 ? "" : ", ", "'", spec.name, "'"});
                if (kind == 1) {
                    names[kind] += text({" ", spec.rows, " x ", spec.elements / spec.rows});
                }
            } else if (counts[kind] == most + 1) {
                names[kind] += ", ...";
            }
        }
        line =
            text({"\n", type_name<typename Config::Optimizer>(), " updates ", counts[1],
                  " parameters as matrices (", names[1], ") and ", counts[0], " element by element",
                  (counts[0] == 0 ? "" : " ("), names[0], (counts[0] == 0 ? "" : ")")});
    }
    return line;
}

/// @brief Returns what `describe` says of a stage or an engine besides its composition.
template <class Engine>
[[gnu::cold]] std::string describe_settings(Engine const& engine) {
    std::string settings =
        describe_micro_steps(engine) + describe_gathers(engine)
        + (engine.communicates_inline() ? ", collectives on the calling thread" : "")
        + describe_norm_limit(engine) + describe_groups(engine)
        + describe_updates<config_of_t<Engine>>(engine.layout());
    for (std::string const& option : engine.unused_options()) {
        settings += "\nnot used in this stage: " + option;
    }
    return settings;
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Returns a composition in one line for logs, defaults included: "ZeroStage<2>: bfloat16
/// parameters (...), ContiguousPartitioner, ..., reduced by every_micro_step".
///
/// The reduction schedule is an option whose default differs between stages 1 and 2, so the same
/// program may round at different points in these stages. Pass the engine to read the schedule that
/// it uses.
template <class Stage>
[[nodiscard]] std::string describe(ReductionSchedule schedule = default_schedule(Stage::stage)) {
    using Chosen = typename Stage::Composition; // not named Composition: -Wshadow warns if the
                                                // header of zero::Composition is included first
    return detail::describe_engine<typename Chosen::EngineConfig>(
        Stage::stage,
        detail::text({type_name<typename Chosen::Partitioner>(), ", ",
                      type_name<typename Chosen::Bucketer>(), ", "}),
        schedule);
}

/// @brief Returns the composition of an engine, with the reduction schedule that it uses and
/// whether a step has one micro-step, gathers of their own, units that `keep_until_update` keeps,
/// collectives on the calling thread, `skip_above_norm`, the size of its groups, then a line with
/// the matrices of an optimizer that has a rule for them (`Muon`), and one line for each of
/// `Engine::unused_options`.
template <class Stage>
    requires requires(Stage const& stage) {
        typename Stage::Composition;
        stage.schedule();
    }
[[nodiscard]] std::string describe(Stage const& stage) {
    return describe<Stage>(stage.schedule()) + detail::describe_settings(stage);
}

/// @brief The same for a program that has an engine but not its stage. An engine does not depend on
/// the types of partitioner and bucketer, so the text does not name them.
template <class EngineType>
    requires(!requires { typename EngineType::Composition; })
[[nodiscard]] std::string describe(EngineType const& engine) {
    return detail::describe_engine<detail::config_of_t<EngineType>>(engine.stage_number(), "",
                                                                    engine.schedule())
           + detail::describe_settings(engine);
}

} // namespace ZERO_NAMESPACE
