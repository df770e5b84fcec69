#pragma once

#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/core/convert.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/zero.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

// A model whose data are micro-batches with numbers, for any number of ranks.

namespace zero::test::tree {

/// The part of a run that is the same for every number of ranks.
struct Job {
    std::size_t micro_batches = 8;
    std::size_t group = 1;
    std::uint64_t steps = 3;
    std::vector<ParameterSpec> specs = toy_specs();
    bool has_empty_batches = false; ///< some micro-batches have no data: weight 0
    bool leaves_out = false; ///< no micro-batch uses unit 1 in step 1, number 0 nothing in step 2
    std::optional<std::uint64_t> overflows = {}; ///< the step in which a micro-batch overflows
    std::optional<std::uint64_t> delays = {};    ///< seed of a communication queue that pauses
    Storage storage = Storage::owned;            ///< stage 3 takes owned
};

/// Gradients of neighbouring elements differ by up to 2^30, so that the order of a sum shows, in
/// 16-bit types as well.
inline float gradient_of(Job const& job, std::uint64_t step, std::size_t number,
                         std::size_t parameter, std::size_t element) {
    if (job.has_empty_batches && number % 3 == 1) {
        return 0.0F;
    }
    if (job.overflows == step && number == job.micro_batches / 10 * 5 && parameter == 1
        && element == 3) {
        return std::numeric_limits<float>::infinity();
    }
    auto const exponent = static_cast<int>((element + number * 7) % 31) - 27;
    return std::ldexp(noise(step, number, parameter, element), exponent);
}

/// Whether a micro-batch uses a unit. Some use none.
inline bool is_used(Job const& job, std::uint64_t step, std::size_t number, std::size_t unit) {
    if (job.leaves_out && job.micro_batches > 1
        && ((step == 1 && unit == 1) || (step == 2 && number == 0))) {
        return false;
    }
    return job.micro_batches == 1 || (number % 5 != 3 && (number % 4 != 1 || unit != 2));
}

inline std::int64_t weight_of(Job const& job, std::size_t number) {
    return job.has_empty_batches && number % 3 == 1 ? 0 : static_cast<std::int64_t>(number % 4 + 1);
}

/// The state of a run after a step.
struct Seen {
    Trained trained;
    std::uint64_t norm = 0;  ///< bits
    std::uint64_t steps = 0; ///< that were not skipped
    std::uint32_t scale = 0; ///< bits
    friend bool operator==(Seen const& a, Seen const& b) {
        return a.trained == b.trained && a.norm == b.norm && a.steps == b.steps
               && a.scale == b.scale;
    }
};

/// Shows the state of an engine after a step. Collective.
template <class Engine>
Seen seen(Engine& engine, StepReport const& report, Job const& job) {
    Seen result;
    result.trained.resize(job.specs);
    result.trained.parameters = full_parameters(engine);
    engine.for_each_owned_slice([&](auto const& slice) { result.trained.add(slice); });
    result.norm = std::bit_cast<std::uint64_t>(report.gradient_norm);
    result.steps = engine.step_count();
    result.scale = std::bit_cast<std::uint32_t>(engine.loss_scaler_state().scale);
    return result;
}

/// Joins what the ranks saw after each step.
inline std::vector<Seen> joined(std::vector<std::vector<Seen>> const& ranks) {
    std::vector<Seen> all = ranks.front();
    for (std::size_t step = 0; step < all.size(); ++step) {
        std::vector<Trained> of_step;
        for (auto const& rank : ranks) {
            of_step.push_back(rank[step].trained);
        }
        all[step].trained = Trained::joined(of_step);
    }
    return all;
}

enum class Delivery : std::uint8_t { leases, handed_over, own_memory };

/// First element of a parameter in the caller's memory. Neighbours are not aligned alike, so that
/// no rank has its gradients by chance in one block, as an engine over an adopted block finds it.
inline std::size_t begin_of(std::size_t parameter) {
    return parameter % 2;
}

/// Runs a step of the model on this rank. Collective.
/// @param own memory of the gradients, by parameter, for `Delivery::own_memory`
template <class Engine>
StepReport run_step(Engine& engine, Job const& job, std::uint64_t step, bool is_weighted = false,
                    Delivery delivery = Delivery::leases,
                    std::vector<std::vector<typename Engine::GradientType>> const& own = {}) {
    using G = typename Engine::GradientType;
    std::int64_t weight = 0;
    engine.begin_step();
    float const scale = engine.loss_scale();
    for (auto const micro_step : engine.micro_steps()) {
        std::size_t const number = engine.micro_batch(micro_step);
        weight += weight_of(job, number);
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            (void)engine.acquire(unit);
        }
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            if (!is_used(job, step, number, unit) && delivery != Delivery::own_memory) {
                if (engine.stage_number() == 3 || number % 5 != 3) { // else it reports nothing
                    engine.gradients_ready(unit);
                }
                continue;
            }
            if (delivery == Delivery::own_memory) {
                engine.begin_gradients(unit);
            }
            std::optional<Gradients<typename Engine::EngineType>> leased;
            if (delivery == Delivery::leases) {
                leased.emplace(engine.gradients(unit));
            }
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                std::vector<G> values(job.specs[parameter].elements);
                for (std::size_t i = 0; i < values.size(); ++i) {
                    float const here = gradient_of(job, step, number, parameter, i);
                    values[i] =
                        from_float<G>(is_used(job, step, number, unit) ? here * scale : 0.0F);
                }
                if (!job.specs[parameter].trainable) {
                    continue;
                }
                if (delivery == Delivery::handed_over) {
                    HostBackend::synchronise(
                        engine.hand_over(unit, parameter, std::span<G const>(values)));
                    continue;
                }
                G* const to = leased ? (*leased)[parameter].data()
                                     : const_cast<G*>(own[parameter].data() + begin_of(parameter));
                for (std::size_t i = 0; i < values.size(); ++i) {
                    to[i] = from_float<G>(to_float(to[i]) + to_float(values[i]));
                }
            }
            engine.gradients_ready(unit);
        }
    }
    return (is_weighted ? engine.step(0.01, weight) : engine.step(0.01)).report();
}

/// Sets the tree of a job, and a loss scale with which no gradient overflows of itself.
template <class Options>
void configure(Options& options, Job const& job) {
    options.reduction.micro_batches = job.micro_batches;
    options.reduction.micro_batch_group = job.group;
    if constexpr (requires { options.loss_scaler.initial_scale; }) {
        options.loss_scaler.initial_scale = 128;
        options.loss_scaler.growth_interval = 2;
    }
    if constexpr (requires { options.loss_scaler.scale; }) {
        options.loss_scaler.scale = 128;
    }
}

/// Trains on a communicator and returns what this rank saw.
template <class Stage, class Communicator>
std::vector<Seen> train_on(Communicator& communicator, typename Stage::Options options,
                           Job const& job, Delivery delivery) {
    using G = typename Stage::GradientType;
    auto parameters = registration<typename Stage::ParameterType, G>(job.specs);
    std::vector<std::vector<G>> own;
    for (auto& parameter : parameters) {
        own.emplace_back(parameter.elements + 1);
        if (delivery == Delivery::own_memory && parameter.trainable) {
            parameter.gradient = own.back().data() + begin_of(own.size() - 1);
        }
    }
    std::vector<typename Stage::ParameterType> block;
    if (job.storage != Storage::owned) {
        constexpr std::size_t multiple = 64;
        std::vector<std::size_t> begins;
        for (auto const& parameter : parameters) {
            begins.push_back(block.size());
            std::vector<typename Stage::ParameterType> values(parameter.elements);
            parameter.initialise(0, values);
            block.insert(block.end(), values.begin(), values.end());
            block.resize((block.size() + multiple - 1) / multiple * multiple);
        }
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            parameters[index].initialise = {};
            parameters[index].data = block.data() + begins[index];
        }
        options.storage = job.storage;
        if (job.storage == Storage::adopted) {
            options.adopted_block = block;
        }
    }
    configure(options, job);
    std::unique_ptr<host::DelayingQueue> queue;
    if (job.delays) {
        queue = std::make_unique<host::DelayingQueue>(
            *job.delays + static_cast<std::uint64_t>(communicator.rank()), 20);
        options.communication_queue = queue.get();
    }
    Stage engine(communicator, parameters, options);
    bool const is_weighted = options.reduction.kind == ReductionKind::weighted_mean;
    std::vector<Seen> result;
    for (std::uint64_t step = 0; step < job.steps; ++step) {
        result.push_back(
            seen(engine, run_step(engine, job, step, is_weighted, delivery, own), job));
    }
    return result;
}

/// The same on threads.
template <class Stage>
std::vector<Seen> train(int world, typename Stage::Options const& options, Job const& job,
                        Delivery delivery = Delivery::leases) {
    using Communicator = typename Stage::Communicator;
    return joined(on_ranks<std::vector<Seen>, Communicator>(world, [&](Communicator& communicator) {
        return train_on<Stage>(communicator, options, job, delivery);
    }));
}

/// Draws a model: units of one to three parameters, the first of which is tied to the last unit.
/// The second is trainable and not empty, for the step that overflows.
inline std::vector<ParameterSpec> random_model(std::mt19937_64& random) {
    constexpr std::size_t sizes[] = {0, 1, 3, 63, 64, 65, 127, 200, 333};
    std::size_t const units = 2 + random() % 4;
    std::vector<ParameterSpec> specs{{"tied", 1 + random() % 300, {0, units - 1}, 0, true},
                                     {"first", 4 + random() % 400, {0}, 1, true}};
    for (std::size_t unit = 0; unit < units; ++unit) {
        for (std::size_t more = random() % 3 + (unit == 0 ? 0 : 1); more != 0; --more) {
            specs.push_back({std::to_string(specs.size()),
                             sizes[random() % std::size(sizes)],
                             {unit},
                             random() % 2,
                             random() % 5 != 0});
        }
    }
    return specs;
}

/// Whether the partitioner of a stage serves an adopted block.
template <class Stage>
inline constexpr bool cuts_contiguously =
    std::is_same_v<typename Stage::Composition::Partitioner, ContiguousPartitioner>;

/// Whether a stage skips a step that overflows.
template <class Stage>
concept SkipsOverflow = Stage::Composition::LossScaler::skips_overflow;

/// A partitioner and a bucketer for each stage, because they change no bits.
template <int N>
using Cutter = std::tuple_element_t<N, std::tuple<RoundRobinPartitioner, BalancedPartitioner,
                                                  ContiguousPartitioner, RoundRobinPartitioner>>;
template <int N>
using OtherCutter = std::tuple_element_t<N, std::tuple<WholeGroupPartitioner, PerTensorPartitioner,
                                                       DealtGroupPartitioner, BalancedPartitioner>>;
template <int N>
using Buckets =
    std::tuple_element_t<N,
                         std::tuple<UnitBucketer, SingleBucketer, ParameterBucketer, UnitBucketer>>;

} // namespace zero::test::tree
