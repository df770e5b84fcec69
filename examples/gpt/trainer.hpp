#pragma once

#include "checkpoints.hpp"
#include "model.hpp"
#include "progress.hpp"
#include "settings.hpp"
#include "summary.hpp"
#include "tensors.hpp"
#include "text.hpp"

#include <zero/core/timeline.hpp>
#include <zero/core/timeline_span.hpp>
#include <zero/ops/block_codecs.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gpt {

/// @brief While an object lives, the work that the model enqueues on a queue is a span of the
/// engine's timeline, if its communicator is `zero::Timed`.
template <class Engine>
struct Work {
    Work(typename Engine::Queue /*queue*/, char const* /*name*/, std::size_t /*unit*/) noexcept {}
};
template <class Engine>
    requires requires { typename Engine::Backend::Work; }
struct Work<Engine> : Engine::Backend::Work {
    using Engine::Backend::Work::Work;
};

/// @brief The trainer of one rank: it holds the engine, the model and its part of each batch.
template <class Engine, class Device>
class Trainer {
public:
    using P = typename Engine::ParameterType;
    using G = typename Engine::GradientType;

    Trainer(Engine& engine, Device device, std::size_t rank, std::size_t world,
            Config const& config, Settings const& settings, Text const& text)
        : _engine(&engine), _settings(&settings), _config(config), _rank(rank), _world(world),
          _model(config, settings.batch, std::move(device)), _text(_model.device().place(text)),
          _batch(_model.device().batch(settings.batch, config.context)) {}

    [[nodiscard]] Device& device() noexcept { return _model.device(); }

    /// @brief Runs one optimizer step. Only enqueues it on a device.
    void step(std::size_t step, double learning_rate) {
        _model.device().clear_loss();
        _engine->begin_step();
        auto const scale = Device::scale_of(_engine->loss_scale());
        for (auto const micro_step : _engine->micro_steps(_settings->accumulate)) {
            auto const text = _text.training();
            // numbered batches do not depend on the number of ranks
            bool const numbered = _settings->micro_batches != 0;
            std::size_t const number = numbered ? _engine->micro_batch(micro_step) : _rank;
            _batch.fill(text, SamplePositions::drawn(text.size(), _config.context, _settings->seed,
                                                     step, numbered ? 0 : micro_step.value,
                                                     number * _settings->batch));
            forward();
            backward(scale);
        }
        _engine->step(learning_rate);
    }

    /// @brief Waits for the last step; returns the loss of this rank's part of it, in nats per
    /// byte.
    [[nodiscard]] double loss() {
        return _model.device().loss() / static_cast<double>(_settings->accumulate);
    }

    /// @brief Measures the loss of this rank's share of the validation text. Collective in stage 3,
    /// so all ranks call it.
    void validate(RankSummary& summary, std::size_t batches) {
        _model.device().clear_loss();
        for (std::size_t index = 0; index < batches; ++index) {
            auto const text = _text.validation();
            _batch.fill(text,
                        SamplePositions::spread(text.size(), _config.context, _settings->batch,
                                                index * _world + _rank, batches * _world));
            forward();
            auto const weights = _engine->acquire(_config.head_unit());
            _model.head_forward(Tensors<P const>(weights), _batch.targets());
        }
        summary.validation_loss_sum = _model.device().loss();
        summary.validation_batches = batches;
    }

private:
    void forward() {
        {
            auto const weights = _engine->acquire(Config::embedding_unit());
            Work<Engine> const work(queue(), "forward", Config::embedding_unit());
            _model.embedding_forward(Tensors<P const>(weights), _batch.tokens());
        }
        for (std::size_t layer = 0; layer < _config.layers; ++layer) {
            auto const weights = _engine->acquire(Config::block_unit(layer));
            Work<Engine> const work(queue(), "forward", Config::block_unit(layer));
            _model.block_forward(layer, Tensors<P const>(weights));
        }
    }

    void backward(typename Device::Scale scale) {
        {
            std::size_t const unit = _config.head_unit();
            auto const weights = _engine->acquire(unit);
            auto const gradients = _engine->gradients(unit);
            {
                Work<Engine> const work(queue(), "backward", unit);
                _model.head_forward_backward(Tensors<P const>(weights), Tensors<G>(gradients),
                                             _batch.targets(), scale);
            }
            _engine->gradients_ready(unit);
        }
        for (std::size_t layer = _config.layers; layer-- > 0;) {
            std::size_t const unit = Config::block_unit(layer);
            auto const weights = _engine->acquire(unit);
            auto const gradients = _engine->gradients(unit);
            {
                Work<Engine> const work(queue(), "backward", unit);
                _model.block_backward(layer, Tensors<P const>(weights), Tensors<G>(gradients));
            }
            _engine->gradients_ready(unit);
        }
        auto const gradients = _engine->gradients(Config::embedding_unit());
        {
            Work<Engine> const work(queue(), "backward", Config::embedding_unit());
            _model.embedding_backward(Tensors<G>(gradients), _batch.tokens());
        }
        _engine->gradients_ready(Config::embedding_unit());
    }

    /// The queue on which the model runs.
    [[nodiscard]] typename Engine::Queue queue() {
        if constexpr (requires { _model.device().stream(); }) {
            return _model.device().stream();
        } else {
            return Engine::Backend::default_compute_queue();
        }
    }

    Engine* _engine;
    Settings const* _settings;
    Config _config;
    std::size_t _rank;
    std::size_t _world;
    ModelOn<Device> _model;
    typename Device::Text _text;
    typename Device::Batch _batch;
};

/// @brief Returns the units that `steps` micro-steps acquire, in order.
inline std::vector<std::size_t> acquired_units(Config const& config, std::size_t steps) {
    std::vector<std::size_t> units;
    for (std::size_t step = 0; step < steps; ++step) {
        for (std::size_t unit = 0; unit + 1 < config.units(); ++unit) {
            units.push_back(unit);
        }
        for (std::size_t unit = config.units(); unit-- > 1;) {
            units.push_back(unit);
        }
    }
    return units;
}

/// @brief Returns the parameters as the engine takes them: in order of use, with initial values
/// computed on demand.
template <class P>
std::vector<zero::Parameter<P>> registration(std::vector<Parameter> const& model,
                                             std::uint64_t seed) {
    std::vector<zero::Parameter<P>> parameters;
    for (std::size_t index = 0; index < model.size(); ++index) {
        parameters.push_back(
            {.name = model[index].name,
             .elements = model[index].elements,
             .units = model[index].units,
             .group = model[index].is_matrix ? 0U : 1U, // biases and norms are not decayed
             .initialise =
                 [&model, seed, index](std::size_t begin, std::span<P> values) {
                     initialise(model[index], index, seed, begin, values);
                 },
             .is_deterministic = true}); // each rank computes what it owns, and nothing is sent
    }
    return parameters;
}

/// @brief The options of every engine of this example.
template <class Stage>
typename Stage::Options engine_options(Settings const& settings) {
    typename Stage::Options options;
    options.gradient_clipping = 1.0F;
    if (settings.skip_above_norm != 0.0F) {
        options.skip_above_norm.limit = settings.skip_above_norm;
    }
    options.bucketer.bucket_bytes = settings.bucket_bytes;
    options.gather = settings.gather;
    options.update_tile_elements = settings.update_tile_elements;
    // In an assignment whose type depends on a template parameter, nvcc 13.0 takes the values of a
    // braced list in order, whatever names they have. Named types avoid that.
    using Group = typename decltype(options.groups)::value_type;
    options.groups = {Group{.optimizer = {.weight_decay = 0.1}},
                      Group{.optimizer = {.weight_decay = 0.0}}};
    options.reduction.micro_batches = settings.is_in_tree() ? settings.micro_batches : 0;
    if (!settings.schedule.empty()) {
        options.reduction.schedule = settings.schedule == "boundary"
                                         ? zero::ReductionSchedule::boundary
                                         : zero::ReductionSchedule::every_micro_step;
    }
    return options;
}

/// @brief Runs the steps of one rank and fills its results, and the report of its gathers.
/// @param communicator counts its traffic
/// @param memory the memory resource of the engine; it counts by kind
/// @return the hash of the parameters
template <class Engine, class Device, class Communicator, class Memory>
std::uint64_t train_rank(Engine& engine, Device device, Communicator& communicator,
                         Config const& config, Settings const& settings, Text const& text,
                         Memory const& memory, RankSummary& own, zero::TraceReport& trace) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    Checkpoints checkpoints(engine, communicator, settings);
    std::size_t const first = checkpoints.resume();
    std::size_t const end =
        settings.stop_after == 0 ? settings.steps : std::min(settings.steps, settings.stop_after);
    communicator.reset_traffic();
    Trainer<Engine, Device> trainer(engine, std::move(device), rank, world, config, settings, text);
    Progress const progress(settings);
    std::size_t const tokens = world * settings.batch * settings.accumulate * settings.context;
    auto const start = std::chrono::steady_clock::now();
    constexpr std::size_t recorded_steps = 3;
    zero::Timeline* const timeline = engine.timeline();
    for (std::size_t step = first; step < end; ++step) {
        if (timeline != nullptr && step == std::max(end, first + recorded_steps) - recorded_steps) {
            (void)engine.step_count(); // waits, so that no step is recorded in part
            timeline->clear();
            timeline->set_recording(true);
        }
        trainer.step(step, learning_rate_at(step, settings));
        if (rank == 0 && progress.is_due(step)) {
            progress.show(step, trainer.loss(), tokens);
        }
        checkpoints.save_if_due(step + 1, end);
    }
    engine.settle();           // publishes an update that --delayed has left
    (void)engine.step_count(); // waits for all steps
    own.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    own.traffic = checkpoints.traffic_of_steps();
    if (timeline != nullptr) {
        timeline->set_recording(false);
        auto const summary = timeline->summary();
        own.communication = summary.communication;
        own.exposed = summary.exposed;
    }
    own.plan = engine.memory_plan();
    trace = engine.trace_report();
    own.leases = own.plan[zero::BufferKind::parameter_leases].bytes()
                 / sizeof(typename Engine::ParameterType);
    for (std::size_t kind = 0; kind < zero::buffer_kinds; ++kind) {
        own.allocated[kind] = memory.allocated_bytes(static_cast<zero::BufferKind>(kind));
    }
    std::size_t const group = engine.layout().world(); // all ranks, or those of --shard
    auto const formula = [&](std::size_t micro_steps, zero::GatherOptions const& gather) {
        auto const inner = static_cast<std::size_t>(settings.inner_ranks);
        if (inner != 1 && inner != engine.layout().world()) {
            auto const levels = zero::step_traffic_of_levels(
                engine.layout(), rank, inner, engine.stage_number(), engine.schedule(), micro_steps,
                acquired_units(config, micro_steps), gather);
            return zero::Traffic{levels.inside.reduce_scatter + levels.between.reduce_scatter,
                                 levels.inside.all_gather + levels.between.all_gather};
        }
        if (settings.secondary != 0) {
            auto const traffic = zero::step_traffic_with_secondary(
                engine.layout(), rank, settings.secondary, engine.schedule(), micro_steps,
                acquired_units(config, micro_steps), gather);
            return zero::Traffic{traffic.everyone.reduce_scatter,
                                 traffic.everyone.all_gather + traffic.secondary};
        }
        return zero::step_traffic_of_rank(
            engine.layout(), rank % group, engine.stage_number(), engine.schedule(), micro_steps,
            acquired_units(config, micro_steps), gather, settings.is_in_tree());
    };
    auto const usual = formula(settings.accumulate, settings.gather);
    std::size_t const steps = end > first ? end - first : 0;
    std::uint64_t const between =
        zero::replica_traffic_of_rank(engine.layout(), rank % group, rank / group, world / group);
    own.formula = {usual.reduce_scatter * steps, usual.all_gather * steps,
                   (usual.all_reduce + between) * steps};
    if (steps != 0) { // the first micro-step records the order and keeps no unit
        own.formula.all_gather +=
            formula(1, {}).all_gather
            - formula(1, {.max_reuse_distance = settings.gather.max_reuse_distance,
                          .keep_after_forward = settings.gather.keep_after_forward})
                  .all_gather;
    }
    if (settings.wire != "plain") { // counted in bytes of blocks of 64 elements
        own.formula.all_gather = own.formula.all_gather / 64
                                 * (settings.wire == "int8" ? zero::Int8Blocks::bytes_per_block
                                                            : zero::Int4Blocks::bytes_per_block);
    }
    if (settings.wire_gradients != "plain") { // these are exchanged
        own.formula.reduce_scatter = 0;
    }
    trainer.validate(own, settings.verify == 0 ? 16 : 1);
    std::uint64_t hash = 0xcbf29ce484222325U;
    engine.for_each_full_parameter([&](std::size_t, auto values) {
        auto const readable = trainer.device().on_host(values);
        hash = hash_bits(hash, std::span(readable));
    });
    return hash;
}

} // namespace gpt
