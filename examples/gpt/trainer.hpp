#pragma once

#include "model.hpp"
#include "ngram.hpp"
#include "settings.hpp"
#include "tensors.hpp"
#include "text.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/layout/traffic.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

namespace gpt {

/// @brief What one rank of a training can tell in the end.
struct RankSummary {
    zero::MemoryPlan plan;
    std::array<std::size_t, zero::buffer_kinds> allocated{};
    zero::TrafficCount traffic;       ///< of the training steps alone, as the transport counted it
    zero::Traffic formula;            ///< elements by the formulas
    double validation_loss_sum = 0.0;
    std::size_t validation_batches = 0;
};

/// @brief The result of a training.
struct Summary {
    std::uint64_t hash = 0;           ///< over the bits of all final parameters
    double validation_loss = 0.0;     ///< nats a byte
    std::size_t parameters = 0;
    std::vector<RankSummary> ranks;
};

/// @brief A trainer of one rank: knows the engine, the model and its part of each batch.
template <class Engine>
class Trainer {
public:
    using P = typename Engine::ParameterType;
    using G = typename Engine::GradientType;

    Trainer(Engine& engine, zero::LoopbackCommunicator const& communicator, Config const& config, Settings const& settings, Text const& text)
        : _engine(&engine), _settings(&settings), _text(&text), _config(config), _rank(static_cast<std::size_t>(communicator.rank())),
          _world(static_cast<std::size_t>(communicator.size())), _model(config, settings.batch), _batch(settings.batch, config.context) {}

    /// @brief One optimizer step; the loss of this rank's part, in nats a byte.
    double step(std::size_t step, double learning_rate) {
        double loss = 0.0;
        _engine->begin_step();
        float const scale = _engine->loss_scale();
        for (auto const micro_step : _engine->micro_steps(_settings->accumulate)) {
            _batch.draw(_text->training(), _settings->seed, step, micro_step, _rank * _settings->batch);
            forward();
            loss += backward(scale);
        }
        _engine->step(learning_rate);
        return loss / static_cast<double>(_settings->accumulate);
    }

    /// @brief Adds this rank's share of the validation text; all ranks take part, because in stage 3 they gather together.
    void validate(RankSummary& summary, std::size_t batches) {
        for (std::size_t index = 0; index < batches; ++index) {
            _batch.spread(_text->validation(), index * _world + _rank, batches * _world);
            forward();
            auto const weights = _engine->acquire(_config.head_unit());
            summary.validation_loss_sum += _model.head_forward(Tensors<P const>(weights), _batch.targets());
            ++summary.validation_batches;
        }
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

    double backward(float scale) {
        double loss = 0.0;
        {
            std::size_t const unit = _config.head_unit();
            auto const weights = _engine->acquire(unit);
            auto const gradients = _engine->gradients(unit);
            loss = _model.head_forward_backward(Tensors<P const>(weights), Tensors<G>(gradients), _batch.targets(), scale);
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
        return loss;
    }

    Engine* _engine;
    Settings const* _settings;
    Text const* _text;
    Config _config;
    std::size_t _rank;
    std::size_t _world;
    Model<float> _model;
    Batch _batch;
};

/// @brief Linear warm-up, then a cosine down to a tenth.
inline double learning_rate_at(std::size_t step, Settings const& settings) {
    double const warm_up = std::min(40.0, 0.1 * static_cast<double>(settings.steps) + 1.0);
    auto const now = static_cast<double>(step + 1);
    if (now < warm_up) {
        return settings.learning_rate * now / warm_up;
    }
    double const part = (now - warm_up) / std::max(1.0, static_cast<double>(settings.steps) - warm_up);
    return settings.learning_rate * (0.1 + 0.9 * 0.5 * (1.0 + std::cos(3.141592653589793 * part)));
}

/// @brief Lines for a person who waits.
class Progress {
public:
    explicit Progress(Settings const& settings) : _settings(&settings), _start(std::chrono::steady_clock::now()) {}

    void show(std::size_t step, double loss, std::size_t tokens_per_step) const {
        std::size_t const every = std::max<std::size_t>(1, _settings->steps / 15);
        if (_settings->is_quiet || ((step + 1) % every != 0 && step != 0 && step + 1 != _settings->steps)) {
            return;
        }
        double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - _start).count();
        double const done = static_cast<double>(step + 1);
        std::printf("step %5zu/%zu  loss of rank 0 %.4f  %8.0f tokens/s  %4.0f s remaining\n", step + 1, _settings->steps, loss,
                    done * static_cast<double>(tokens_per_step) / seconds, seconds / done * (static_cast<double>(_settings->steps) - done));
        std::fflush(stdout);
    }

private:
    Settings const* _settings;
    std::chrono::steady_clock::time_point _start;
};

template <class T>
std::uint64_t hash_bits(std::uint64_t hash, std::span<T const> values) noexcept {
    for (T const value : values) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(value));
        hash = (hash ^ bits) * 0x100000001b3U;
        hash ^= hash >> 29U;
    }
    return hash;
}

/// @brief Every unit that one micro-step acquires, in this order.
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

/// @brief The parameters as an engine wants them: in order of use, with initial values computed where they are needed.
template <class P>
std::vector<zero::Parameter<P>> registration(std::vector<Parameter> const& model, std::uint64_t seed) {
    std::vector<zero::Parameter<P>> parameters;
    for (std::size_t index = 0; index < model.size(); ++index) {
        parameters.push_back({.name = model[index].name, .elements = model[index].elements, .units = model[index].units,
                              .group = model[index].is_matrix ? 0U : 1U, // biases and norms are not decayed
                              .initialize = [&model, seed, index](std::size_t, std::span<P> values) { initialise(model[index], index, seed, values); }});
    }
    return parameters;
}

/// @brief The steps of one rank, and what it can tell afterwards.
template <class Engine>
void train_rank(Engine& engine, zero::LoopbackCommunicator& communicator, Config const& config, Settings const& settings, Text const& text,
                zero::HostMemoryResource const& memory, Summary& summary) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    communicator.reset_traffic();
    Trainer<Engine> trainer(engine, communicator, config, settings, text);
    Progress const progress(settings);
    std::size_t const tokens = static_cast<std::size_t>(settings.world) * settings.batch * settings.accumulate * settings.context;
    for (std::size_t step = 0; step < settings.steps; ++step) {
        double const loss = trainer.step(step, learning_rate_at(step, settings));
        if (rank == 0) {
            progress.show(step, loss, tokens);
        }
    }
    RankSummary& own = summary.ranks[rank];
    own.traffic = communicator.traffic();
    own.plan = engine.memory_plan();
    for (std::size_t kind = 0; kind < zero::buffer_kinds; ++kind) {
        own.allocated[kind] = memory.allocated_bytes(static_cast<zero::BufferKind>(kind));
    }
    auto const formula = zero::step_traffic_of_rank(engine.layout(), rank, engine.stage_number(), engine.schedule(), settings.accumulate, acquired_units(config, settings.accumulate));
    own.formula = {formula.reduce_scatter * settings.steps, formula.all_gather * settings.steps, formula.all_reduce * settings.steps};
    trainer.validate(own, settings.verify == 0 ? 16 : 1);
    std::uint64_t hash = 0xcbf29ce484222325U;
    engine.for_each_full_parameter([&](std::size_t, auto values) { hash = hash_bits(hash, values); });
    if (rank == 0) {
        summary.hash = hash;
    }
}

/// @brief Trains on `settings.world` ranks of this process.
template <class Stage>
Summary train(Settings const& settings, Text const& text) {
    Config const config = make_config(settings.layers, settings.width, settings.context);
    auto const model = parameters_of(config);
    Summary summary;
    summary.ranks.resize(static_cast<std::size_t>(settings.world));
    std::function<void(zero::LoopbackCommunicator&)> const rank = [&](zero::LoopbackCommunicator& communicator) {
        zero::HostMemoryResource memory;
        typename Stage::Options options;
        options.gradient_clipping = 1.0F;
        options.bucketer.bucket_bytes = settings.bucket_bytes;
        options.groups = {{{.weight_decay = 0.1}}, {{.weight_decay = 0.0}}};
        options.memory = &memory;
        if (!settings.schedule.empty()) {
            options.reduction.schedule = settings.schedule == "boundary" ? zero::ReductionSchedule::boundary : zero::ReductionSchedule::every_micro_step;
        }
        Stage engine(communicator, registration<typename Stage::ParameterType>(model, settings.seed), options);
        train_rank<typename Stage::EngineType>(engine, communicator, config, settings, text, memory, summary);
    };
    zero::run_ranks(settings.world, rank);
    double sum = 0.0;
    std::size_t batches = 0;
    for (auto const& own : summary.ranks) {
        sum += own.validation_loss_sum;
        batches += own.validation_batches;
    }
    summary.validation_loss = sum / static_cast<double>(batches);
    for (auto const& parameter : model) {
        summary.parameters += parameter.elements;
    }
    return summary;
}

} // namespace gpt
