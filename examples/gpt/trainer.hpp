#pragma once

#include "checkpoints.hpp"
#include "model.hpp"
#include "progress.hpp"
#include "settings.hpp"
#include "summary.hpp"
#include "tensors.hpp"
#include "text.hpp"

#include <zero/stage/detail/accepted_stage.hpp>
#include <zero/stage/detail/diagnose_stage.hpp>
#include <zero/stage/detail/rejected_stage.hpp>
#include <zero/stage/detail/replace_policy.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gpt {

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

    /// @brief Makes one optimizer step. On a device it only enqueues.
    void step(std::size_t step, double learning_rate) {
        _model.device().clear_loss();
        _engine->begin_step();
        auto const scale = Device::scale_of(_engine->loss_scale());
        for (auto const micro_step : _engine->micro_steps(_settings->accumulate)) {
            auto const text = _text.training();
            _batch.fill(text, SamplePositions::drawn(text.size(), _config.context, _settings->seed,
                                                     step, micro_step, _rank * _settings->batch));
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
            _model.embedding_forward(Tensors<P const>(weights), _batch.tokens());
        }
        for (std::size_t layer = 0; layer < _config.layers; ++layer) {
            auto const weights = _engine->acquire(Config::block_unit(layer));
            _model.block_forward(layer, Tensors<P const>(weights));
        }
    }

    void backward(typename Device::Scale scale) {
        {
            std::size_t const unit = _config.head_unit();
            auto const weights = _engine->acquire(unit);
            auto const gradients = _engine->gradients(unit);
            _model.head_forward_backward(Tensors<P const>(weights), Tensors<G>(gradients),
                                         _batch.targets(), scale);
            _engine->gradients_ready(unit);
        }
        for (std::size_t layer = _config.layers; layer-- > 0;) {
            std::size_t const unit = Config::block_unit(layer);
            auto const weights = _engine->acquire(unit);
            auto const gradients = _engine->gradients(unit);
            _model.block_backward(layer, Tensors<P const>(weights), Tensors<G>(gradients));
            _engine->gradients_ready(unit);
        }
        auto const gradients = _engine->gradients(Config::embedding_unit());
        _model.embedding_backward(Tensors<G>(gradients), _batch.tokens());
        _engine->gradients_ready(Config::embedding_unit());
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

/// @brief The units that one micro-step acquires, in order.
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

/// @brief The parameters as the engine takes them: in order of use, with initial values computed on
/// demand.
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
             .initialise = [&model, seed, index](std::size_t, std::span<P> values) {
                 initialise(model[index], index, seed, values);
             }});
    }
    return parameters;
}

/// @brief The options of every engine of this example.
template <class Stage>
typename Stage::Options engine_options(Settings const& settings) {
    typename Stage::Options options;
    options.gradient_clipping = 1.0F;
    options.bucketer.bucket_bytes = settings.bucket_bytes;
    options.groups = {{{.weight_decay = 0.1}}, {{.weight_decay = 0.0}}};
    if (!settings.schedule.empty()) {
        options.reduction.schedule = settings.schedule == "boundary"
                                         ? zero::ReductionSchedule::boundary
                                         : zero::ReductionSchedule::every_micro_step;
    }
    return options;
}

/// @brief Runs the steps of one rank and fills its results.
/// @param communicator counts its traffic
/// @param memory the memory resource of the engine; it counts by kind
/// @return the hash of the parameters
template <class Engine, class Device, class Communicator, class Memory>
std::uint64_t train_rank(Engine& engine, Device device, Communicator& communicator,
                         Config const& config, Settings const& settings, Text const& text,
                         Memory const& memory, RankSummary& own) {
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
    for (std::size_t step = first; step < end; ++step) {
        trainer.step(step, learning_rate_at(step, settings));
        if (rank == 0 && progress.is_due(step)) {
            progress.show(step, trainer.loss(), tokens);
        }
        checkpoints.save_if_due(step + 1, end);
    }
    own.traffic = checkpoints.traffic_of_steps();
    own.plan = engine.memory_plan();
    for (std::size_t kind = 0; kind < zero::buffer_kinds; ++kind) {
        own.allocated[kind] = memory.allocated_bytes(static_cast<zero::BufferKind>(kind));
    }
    auto const formula = zero::step_traffic_of_rank(engine.layout(), rank, engine.stage_number(),
                                                    engine.schedule(), settings.accumulate,
                                                    acquired_units(config, settings.accumulate));
    std::size_t const steps = end > first ? end - first : 0;
    own.formula = {formula.reduce_scatter * steps, formula.all_gather * steps,
                   formula.all_reduce * steps};
    trainer.validate(own, settings.verify == 0 ? 16 : 1);
    std::uint64_t hash = 0xcbf29ce484222325U;
    engine.for_each_full_parameter([&](std::size_t, auto values) {
        auto const readable = trainer.device().on_host(values);
        hash = hash_bits(hash, std::span(readable));
    });
    return hash;
}

} // namespace gpt
